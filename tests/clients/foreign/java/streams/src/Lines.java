import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** Commands and reports as lines of JSON. */
final class Lines {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
  private static final BufferedReader IN = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

  private Lines() {}

  /** The next command; null at the end. */
  static JsonNode command() throws IOException {
    String line = IN.readLine();
    return line == null ? null : JSON.readTree(line);
  }

  static void report(String type, Object... fields) {
    Map<String, Object> report = new LinkedHashMap<>(Map.of("type", type));
    for (int at = 0; at < fields.length; at += 2) {
      report.put((String) fields[at], fields[at + 1]);
    }
    try {
      OUT.println(JSON.writeValueAsString(report));
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }
}
