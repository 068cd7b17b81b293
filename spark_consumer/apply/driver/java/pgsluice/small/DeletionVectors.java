package pgsluice.small;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.delta.actions.DeletionVectorDescriptor;
import org.apache.spark.sql.delta.actions.DeletionVectorDescriptor$;
import org.apache.spark.sql.delta.deletionvectors.RoaringBitmapArray;
import org.apache.spark.sql.delta.deletionvectors.RoaringBitmapArrayFormat$;
import org.apache.spark.sql.delta.deletionvectors.StoredBitmap;
import org.apache.spark.sql.delta.storage.dv.DeletionVectorStoreUtils.Writer;
import org.apache.spark.sql.delta.storage.dv.HadoopFileSystemDVStore;
import scala.Option;

/**
 * Deletion vectors of a table, by Delta's own classes.
 *
 * <p>They are in files, however small: Delta's VACUUM fails over one in the log itself. Source: Delta's
 * protocol, "Deletion Vectors".
 */
final class DeletionVectors {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Path table;
    private final HadoopFileSystemDVStore store;

    /**
     * @param table folder of the table
     */
    DeletionVectors(String table, Configuration conf) {
        this.table = new Path(table);
        store = new HadoopFileSystemDVStore(conf);
    }

    /** Returns the places of the deleted rows of a file; none without a descriptor. */
    RoaringBitmapArray load(JsonNode descriptor) {
        if (descriptor == null) {
            return new RoaringBitmapArray();
        }
        Option<Object> offset = descriptor.hasNonNull("offset")
                ? Option.apply((Object) descriptor.get("offset").asInt())
                : Option.empty();
        DeletionVectorDescriptor known = new DeletionVectorDescriptor(
                descriptor.get("storageType").asText(),
                descriptor.get("pathOrInlineDv").asText(),
                offset,
                descriptor.get("sizeInBytes").asInt(),
                descriptor.get("cardinality").asLong(),
                Option.empty());
        return StoredBitmap.create(known, table).load(store);
    }

    /** Stores the places of deleted rows of files in one new file; returns their descriptors. */
    List<ObjectNode> save(List<RoaringBitmapArray> vectors) throws IOException {
        List<ObjectNode> made = new ArrayList<>();
        if (vectors.isEmpty()) {
            return made;
        }
        UUID id = UUID.randomUUID();
        try (Writer writer = store.createWriter(
                store.generateFileNameInTable(store.pathWithFileSystem(table), id, ""))) {
            for (RoaringBitmapArray vector : vectors) {
                vector.runOptimize();
                byte[] bytes =
                        vector.serializeAsByteArray(RoaringBitmapArrayFormat$.MODULE$.Portable());
                made.add(JSON.createObjectNode()
                        .put("storageType", DeletionVectorDescriptor.UUID_DV_MARKER())
                        .put("pathOrInlineDv", DeletionVectorDescriptor$.MODULE$.encodeUUID(id, ""))
                        .put("offset", writer.write(bytes).offset())
                        .put("sizeInBytes", bytes.length)
                        .put("cardinality", vector.cardinality()));
            }
        }
        return made;
    }
}
