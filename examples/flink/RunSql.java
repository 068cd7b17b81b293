// Runs the statements of a file with Flink in this process, and prints what they return.
//
//     java -cp "jars/*" examples/flink/RunSql.java examples/flink/changes.sql
//
// ${NAME} is taken from the environment. On a cluster, Flink's own SQL client does this.

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

public class RunSql {
  public static void main(String[] given) throws Exception {
    TableEnvironment flink = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
    flink.getConfig().set("parallelism.default", "1");
    flink.getConfig().set("restart-strategy.type", "none");
    flink.getConfig().set("table.exec.source.cdc-events-duplicate", "true");
    String text = Files.readString(Path.of(given[0])).replaceAll("(?m)^--.*$", "");
    text =
        Pattern.compile("\\$\\{(\\w+)\\}")
            .matcher(text)
            .replaceAll(name -> Matcher.quoteReplacement(System.getenv(name.group(1))));
    for (String statement : text.split(";\\s*")) {
      flink.executeSql(statement).print();
    }
  }
}
