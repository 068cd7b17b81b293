package pgsluice.files;

import org.apache.hadoop.fs.LocalFileSystem;

/** {@link RawFiles} with checksums: Hadoop's {@code FileSystem} of the scheme {@code file}. */
public final class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new RawFiles());
    }
}
