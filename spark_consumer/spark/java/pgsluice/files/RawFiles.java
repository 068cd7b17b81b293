package pgsluice.files;

import java.io.IOException;
import java.nio.file.Files;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's files on a local disk, without a process for each call of the system.
 *
 * <p>Without its native library, which pyspark does not have, Hadoop runs {@code chmod} for each file
 * and folder that it creates, and {@code readlink} several times for each that it renames.
 */
public final class RawFiles extends RawLocalFileSystem {
    /** The bits of a folder that chmod keeps: set-user-ID and set-group-ID. */
    private static final int KEPT = 06000;

    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
        java.nio.file.Path file = pathToFile(path).toPath();
        int mode = permission.toShort();
        if (Files.isDirectory(file)) {
            mode |= (int) Files.getAttribute(file, "unix:mode") & KEPT;
        }
        Files.setAttribute(file, "unix:mode", mode);
    }

    @Override
    public FileStatus getFileLinkStatus(Path path) throws IOException {
        boolean isLink = Files.isSymbolicLink(pathToFile(path).toPath());
        return isLink ? super.getFileLinkStatus(path) : getFileStatus(path);
    }
}
