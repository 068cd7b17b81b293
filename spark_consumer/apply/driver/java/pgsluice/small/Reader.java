package pgsluice.small;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consumer that reads spans of offsets of many topics at once; kept from cut to cut. */
public final class Reader implements AutoCloseable {
    private static final long POLL_MS = 1_000;
    private static final Duration POSITION = Duration.ofSeconds(1);

    private final KafkaConsumer<byte[], byte[]> consumer;

    /**
     * @param given properties of the client, without those that say how records are read
     */
    public Reader(Map<String, String> given) {
        Properties properties = new Properties();
        properties.putAll(given);
        properties.put("isolation.level", "read_committed");
        properties.put("enable.auto.commit", "false");
        properties.put("allow.auto.create.topics", "false");
        properties.put("auto.offset.reset", "none");
        properties.put("max.poll.records", "20000");
        properties.remove("group.id");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        consumer = new KafkaConsumer<>(properties, bytes, bytes);
    }

    /**
     * Reads the committed records of spans.
     *
     * @param topics topic of each span
     * @param numbers partition, first offset, and the one after the last, span by span
     * @param mostBytes bytes of keys and values that may be read
     * @param timeoutMs time without any record after which the broker counts as silent
     * @return the records by topic, of topics that could be read whole; null if there are more bytes
     */
    public Map<String, Records> read(
            List<String> topics, List<Number> numbers, long mostBytes, long timeoutMs) {
        Map<TopicPartition, Long> ends = new HashMap<>();
        Map<TopicPartition, Long> starts = new HashMap<>();
        for (int at = 0; at < topics.size(); at++) {
            TopicPartition one =
                    new TopicPartition(topics.get(at), numbers.get(3 * at).intValue());
            starts.put(one, numbers.get(3 * at + 1).longValue());
            ends.put(one, numbers.get(3 * at + 2).longValue());
        }
        Map<String, List<WireRecord>> read = new HashMap<>();
        for (String topic : topics) {
            read.put(topic, new ArrayList<>());
        }
        consumer.assign(ends.keySet());
        consumer.resume(ends.keySet());
        starts.forEach(consumer::seek);
        long bytes = 0;
        long heard = System.nanoTime();
        while (!ends.isEmpty()) {
            boolean isSilent = true;
            for (ConsumerRecord<byte[], byte[]> record :
                    consumer.poll(Duration.ofMillis(Math.min(POLL_MS, timeoutMs)))) {
                isSilent = false;
                Long end = ends.get(new TopicPartition(record.topic(), record.partition()));
                if (end == null || record.offset() >= end) {
                    continue;
                }
                bytes += Math.max(0, record.serializedKeySize())
                        + Math.max(0, record.serializedValueSize());
                if (bytes > mostBytes) {
                    return null;
                }
                read.get(record.topic()).add(WireRecord.of(record));
            }
            List<TopicPartition> done = reached(ends);
            if (!done.isEmpty()) {
                isSilent = false;
                consumer.pause(done);
                ends.keySet().removeAll(done);
            }
            if (!isSilent) {
                heard = System.nanoTime();
            } else if (System.nanoTime() - heard > timeoutMs * 1_000_000) {
                break;
            }
        }
        ends.keySet().forEach(one -> read.remove(one.topic()));
        Map<String, Records> made = new HashMap<>();
        read.forEach((topic, records) -> made.put(topic, new Records(topic, records)));
        return made;
    }

    private List<TopicPartition> reached(Map<TopicPartition, Long> ends) {
        List<TopicPartition> done = new ArrayList<>();
        for (Map.Entry<TopicPartition, Long> one : ends.entrySet()) {
            try {
                if (consumer.position(one.getKey(), POSITION) >= one.getValue()) {
                    done.add(one.getKey());
                }
            } catch (TimeoutException error) {
                // Its leader is not known: the next round asks again.
            }
        }
        return done;
    }

    @Override
    public void close() {
        consumer.close(Duration.ZERO);
    }
}
