// Prints the changes of a topic, from its beginning: Kafka's Java client, and Apicurio's Avro
// deserializer, which reads from any registry with Apicurio's API.
//
//     java -cp "jars/*" examples/TopicReader.java localhost:9092 http://localhost:8081/apis/registry/v2 s1.public.t1
//
// In jars/ are org.apache.kafka:kafka-clients and io.apicurio:apicurio-registry-serdes-avro-serde
// with what they depend on, all in Maven Central, Apache-2.0. With Confluent's deserializer (Apache-2.0 too, from
// Confluent's own Maven repository) it is io.confluent.kafka.serializers.KafkaAvroDeserializer and
// schema.registry.url.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.HashMap;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

public class TopicReader {
  public static void main(String[] given) {
    String avro = "io.apicurio.registry.serde.avro.AvroKafkaDeserializer";
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", given[0]);
    config.put("isolation.level", "read_committed"); // never a part of a transaction
    config.put("key.deserializer", avro);
    config.put("value.deserializer", avro);
    config.put("apicurio.registry.url", given[1]);
    config.put("apicurio.registry.as-confluent", true); // a byte 0, and the id in four bytes
    config.put("apicurio.registry.use-id", "contentId");

    try (KafkaConsumer<GenericRecord, GenericRecord> consumer = new KafkaConsumer<>(config)) {
      List<TopicPartition> partitions =
          consumer.partitionsFor(given[2]).stream()
              .map(p -> new TopicPartition(p.topic(), p.partition()))
              .toList();
      Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      while (partitions.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
        for (ConsumerRecord<GenericRecord, GenericRecord> record :
            consumer.poll(Duration.ofSeconds(1))) {
          print(record);
        }
      }
    }
  }

  static void print(ConsumerRecord<GenericRecord, GenericRecord> record) {
    GenericRecord change = record.value();
    if (change == null) {
      return; // a tombstone, which says what the record before it has said
    }
    byte[] lsn = record.headers().lastHeader("lsn").value();
    System.out.printf(
        "%s %s %s -> %s%n",
        new String(lsn, StandardCharsets.US_ASCII),
        change.get("op"),
        change.get("before"),
        change.get("after"));
  }
}
