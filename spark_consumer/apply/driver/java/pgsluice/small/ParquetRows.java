package pgsluice.small;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.hadoop.util.HadoopOutputFile;
import org.apache.parquet.io.ColumnIOFactory;
import org.apache.parquet.io.InputFile;
import org.apache.parquet.io.MessageColumnIO;
import org.apache.parquet.io.OutputFile;
import org.apache.parquet.io.RecordReader;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.io.api.Converter;
import org.apache.parquet.io.api.GroupConverter;
import org.apache.parquet.io.api.PrimitiveConverter;
import org.apache.parquet.io.api.RecordConsumer;
import org.apache.parquet.io.api.RecordMaterializer;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.PrimitiveType;
import org.apache.parquet.schema.Type;

/** Files of a table: reads and writes whole rows as {@link ColumnType} keeps them. */
final class ParquetRows {
    private ParquetRows() {}

    /**
     * Reads all rows of a file.
     *
     * @param columns columns to read; those that the file does not have are null
     * @param most bytes that their values may have, uncompressed
     * @return how many bytes they have
     * @throws NotReadException they have more, or Spark would have to convert them
     */
    static long read(
            Configuration conf,
            String file,
            Column[] columns,
            long most,
            Sink into)
            throws IOException {
        InputFile input = HadoopInputFile.fromPath(new Path(file), conf);
        // Without options it would parse Hadoop's settings again.
        ParquetReadOptions options = HadoopReadOptions.builder(conf).build();
        try (ParquetFileReader reader = ParquetFileReader.open(input, options)) {
            MessageType written = reader.getFileMetaData().getSchema();
            Map<String, Integer> places = new HashMap<>();
            for (int at = 0; at < columns.length; at++) {
                places.put(columns[at].physical(), at);
            }
            boolean isKnown = isOfToday(reader.getFileMetaData().getKeyValueMetaData());
            java.util.List<Type> kept = new java.util.ArrayList<>();
            for (Type one : written.getFields()) {
                Integer place = places.get(one.getName());
                if (place == null) {
                    continue;
                }
                ColumnType type = columns[place].type();
                if (!type.reads(one) || (type.isOfCalendar() && !isKnown)) {
                    throw new NotReadException();
                }
                kept.add(one);
            }
            if (kept.isEmpty()) {
                for (long at = 0; at < reader.getRecordCount(); at++) {
                    into.accept(at, new Object[columns.length]);
                }
                return 0;
            }
            MessageType wanted = new MessageType(written.getName(), kept);
            long bytes = size(reader, wanted);
            if (bytes > most) {
                throw new NotReadException();
            }
            reader.setRequestedSchema(wanted);
            MessageColumnIO io = new ColumnIOFactory().getColumnIO(wanted, written);
            PageReadStore pages;
            long at = 0;
            while ((pages = reader.readNextRowGroup()) != null) {
                RecordReader<Object[]> rows =
                        io.getRecordReader(pages, new Materializer(columns, wanted, places));
                for (long end = at + pages.getRowCount(); at < end; at++) {
                    into.accept(at, rows.read());
                }
            }
            return bytes;
        }
    }

    /**
     * Whether a file's days are certainly those of the calendar of today, for which Spark converts
     * nothing. Of a file that another engine has written, a setting of Spark says it. Source: Spark's
     * DataSourceUtils, datetimeRebaseSpec.
     */
    private static boolean isOfToday(Map<String, String> metadata) {
        String version = metadata.get("org.apache.spark.version");
        return version != null
                && version.compareTo("3.0.0") >= 0
                && !metadata.containsKey("org.apache.spark.legacyDateTime");
    }

    private static long size(ParquetFileReader reader, MessageType wanted) {
        long bytes = 0;
        for (BlockMetaData block : reader.getRowGroups()) {
            for (ColumnChunkMetaData chunk : block.getColumns()) {
                if (wanted.containsField(chunk.getPath().toArray()[0])) {
                    bytes += chunk.getTotalUncompressedSize();
                }
            }
        }
        return bytes;
    }

    /** Returns the bytes of a row's values of variable length. */
    static long size(Object[] row) {
        long bytes = 0;
        for (Object value : row) {
            if (value instanceof Binary binary) {
                bytes += binary.length();
            }
        }
        return bytes;
    }

    /** Returns a row that keeps nothing else of its pages in memory. */
    static Object[] copied(Object[] row) {
        Object[] made = row.clone();
        for (int at = 0; at < made.length; at++) {
            if (made[at] instanceof Binary binary) {
                made[at] = Binary.fromConstantByteArray(binary.getBytes().clone());
            }
        }
        return made;
    }

    /** Receiver of rows. */
    interface Sink {
        /**
         * Receives a row.
         *
         * @param at its place in the file, from 0
         */
        void accept(long at, Object[] row);
    }

    /** Rows are to be read in another way. */
    static final class NotReadException extends RuntimeException {
        private static final long serialVersionUID = 1L;
    }

    /** Writes rows into a new file; returns its size in bytes. */
    static long write(
            Configuration conf,
            String file,
            Column[] columns,
            CompressionCodecName codec,
            Map<String, String> metadata,
            Iterable<Object[]> rows)
            throws IOException {
        Path path = new Path(file);
        Builder builder = new Builder(HadoopOutputFile.fromPath(path, conf), new Writer(columns, metadata));
        try (ParquetWriter<Object[]> writer =
                builder.withConf(conf).withCompressionCodec(codec).build()) {
            for (Object[] row : rows) {
                writer.write(row);
            }
            // Closed here, as its size is known then.
            writer.close();
            return path.getFileSystem(conf).getFileStatus(path).getLen();
        }
    }

    private static final class Builder extends ParquetWriter.Builder<Object[], Builder> {
        private final Writer writer;

        Builder(OutputFile file, Writer writer) {
            super(file);
            this.writer = writer;
        }

        @Override
        protected Builder self() {
            return this;
        }

        @Override
        protected WriteSupport<Object[]> getWriteSupport(Configuration conf) {
            return writer;
        }
    }

    private static final class Materializer extends RecordMaterializer<Object[]> {
        private final Root root;

        Materializer(Column[] columns, MessageType wanted, Map<String, Integer> places) {
            root = new Root(columns, wanted, places);
        }

        @Override
        public Object[] getCurrentRecord() {
            return root.row;
        }

        @Override
        public GroupConverter getRootConverter() {
            return root;
        }
    }

    private static final class Root extends GroupConverter {
        private final Converter[] converters;
        private final int width;
        private Object[] row;

        Root(Column[] columns, MessageType wanted, Map<String, Integer> places) {
            width = columns.length;
            converters = new Converter[wanted.getFieldCount()];
            for (int at = 0; at < converters.length; at++) {
                PrimitiveType stored = wanted.getType(at).asPrimitiveType();
                int place = places.get(stored.getName());
                converters[at] = new Cell(this, place, columns[place].type(), stored);
            }
        }

        @Override
        public Converter getConverter(int at) {
            return converters[at];
        }

        @Override
        public void start() {
            row = new Object[width];
        }

        @Override
        public void end() {}
    }

    private static final class Cell extends PrimitiveConverter {
        private final Root root;
        private final int place;
        private final ColumnType type;
        private final PrimitiveType stored;

        Cell(Root root, int place, ColumnType type, PrimitiveType stored) {
            this.root = root;
            this.place = place;
            this.type = type;
            this.stored = stored;
        }

        private void set(Object value) {
            root.row[place] = type.ofFile(value, stored);
        }

        @Override
        public void addBinary(Binary value) {
            set(value.copy());
        }

        @Override
        public void addBoolean(boolean value) {
            set(value);
        }

        @Override
        public void addDouble(double value) {
            set(value);
        }

        @Override
        public void addFloat(float value) {
            set(value);
        }

        @Override
        public void addInt(int value) {
            set(value);
        }

        @Override
        public void addLong(long value) {
            set(value);
        }
    }

    private static final class Writer extends WriteSupport<Object[]> {
        private final Column[] columns;
        private final Map<String, String> metadata;
        private RecordConsumer into;

        Writer(Column[] columns, Map<String, String> metadata) {
            this.columns = columns;
            this.metadata = metadata;
        }

        @Override
        public WriteContext init(Configuration conf) {
            Type[] fields = new Type[columns.length];
            for (int at = 0; at < fields.length; at++) {
                Column column = columns[at];
                fields[at] = column.type().inFile(column.physical(), column.fieldId());
            }
            return new WriteContext(new MessageType("spark_schema", fields), metadata);
        }

        @Override
        public void prepareForWrite(RecordConsumer consumer) {
            into = consumer;
        }

        @Override
        public void write(Object[] row) {
            into.startMessage();
            for (int at = 0; at < row.length; at++) {
                if (row[at] != null) {
                    String name = columns[at].physical();
                    into.startField(name, at);
                    columns[at].type().write(row[at], into);
                    into.endField(name, at);
                }
            }
            into.endMessage();
        }
    }
}
