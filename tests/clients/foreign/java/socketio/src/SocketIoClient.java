import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.socket.client.Ack;
import io.socket.client.IO;
import io.socket.client.Socket;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.json.JSONArray;
import org.json.JSONObject;

/** io.socket:socket.io-client, version 1 or 2: see ../../../README.md. */
public final class SocketIoClient {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
  private static final Map<String, Socket> sockets = new HashMap<>();

  public static void main(String[] args) throws Exception {
    String[] transports = args[0].equals("upgrade") ? new String[] {"polling", "websocket"} : new String[] {args[0]};
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = lines.readLine()) != null; ) {
      JsonNode command = JSON.readTree(line);
      Socket socket = sockets.get(command.path("namespace").asText("/"));
      String name = command.path("name").asText();
      switch (command.get("do").asText()) {
        case "connect" -> connect(command, transports);
        case "emit" -> socket.emit(name, arguments(command));
        case "call" -> {
          int id = command.get("id").asInt();
          socket.emit(name, arguments(command), (Ack) answer -> report(object("type", "answer", "id", id), answer));
        }
        case "transport" -> report("type", "transport", "name", transportOf(socket));
        case "disconnect" -> sockets.values().forEach(Socket::disconnect);
        default -> throw new IllegalArgumentException(line);
      }
    }
    // The library's threads may outlive the last command.
    System.exit(0);
  }

  private static void connect(JsonNode command, String[] transports) throws Exception {
    sockets.clear();
    URI url = URI.create(command.get("url").asText());
    IO.Options options = new IO.Options();
    options.transports = transports;
    options.query = url.getRawQuery();
    options.reconnectionDelay = 100;
    options.reconnectionDelayMax = 1_000;
    if (command.hasNonNull("auth")) {
      // Version 1 has none.
      Map<String, String> auth = new HashMap<>();
      command.get("auth").fields().forEachRemaining(field -> auth.put(field.getKey(), field.getValue().asText()));
      IO.Options.class.getField("auth").set(options, auth);
    }
    for (JsonNode node : command.get("namespaces")) {
      String namespace = node.asText();
      Socket socket = IO.socket(new URI(url.getScheme(), null, url.getHost(), url.getPort(), namespace, null, null), options);
      sockets.put(namespace, socket);
      socket.on("connect", nothing -> report("type", "connect", "namespace", namespace));
      socket.on("disconnect", nothing -> report("type", "disconnect", "namespace", namespace));
      // Version 1 says "error" when a namespace refuses; version 2 says "connect_error", also while the server is away.
      socket.on("error", error -> refused(namespace, error));
      socket.on("connect_error", error -> refused(namespace, error));
      for (String name : new String[] {"hello", "ack", "got it"}) {
        socket.on(name, values -> {
          Object last = values.length == 0 ? null : values[values.length - 1];
          if (last instanceof Ack ack) {
            ack.call(5, object("test", true));
          }
          report(object("type", "event", "name", name), values);
        });
      }
      socket.connect();
    }
  }

  private static void refused(String namespace, Object[] error) {
    Object first = error.length == 0 ? "" : error[0];
    String message = first instanceof JSONObject object ? object.optString("message") : String.valueOf(first);
    report("type", "refused", "namespace", namespace, "message", message);
  }

  private static Object[] arguments(JsonNode command) throws Exception {
    Object[] values = new Object[command.get("args").size()];
    for (int at = 0; at < values.length; at++) {
      values[at] = decoded(command.get("args").get(at));
    }
    return values;
  }

  /** What the library takes for a value. */
  private static Object decoded(JsonNode node) throws Exception {
    if (node.isObject()) {
      if (node.has("$bytes")) {
        return Base64.getDecoder().decode(node.get("$bytes").asText());
      }
      JSONObject object = new JSONObject();
      for (Iterator<Map.Entry<String, JsonNode>> fields = node.fields(); fields.hasNext(); ) {
        Map.Entry<String, JsonNode> field = fields.next();
        object.put(field.getKey(), decoded(field.getValue()));
      }
      return object;
    }
    if (node.isArray()) {
      JSONArray array = new JSONArray();
      for (JsonNode item : node) {
        array.put(decoded(item));
      }
      return array;
    }
    return node.isNull() ? JSONObject.NULL : node.isNumber() ? node.numberValue() : node.isBoolean() ? (Object) node.asBoolean() : node.asText();
  }

  private static Object encoded(Object value) throws Exception {
    if (value instanceof byte[] bytes) {
      return object("$bytes", Base64.getEncoder().encodeToString(bytes));
    }
    if (value instanceof JSONObject object) {
      JSONObject copy = new JSONObject();
      for (Iterator<?> keys = object.keys(); keys.hasNext(); ) {
        String key = String.valueOf(keys.next());
        copy.put(key, encoded(object.get(key)));
      }
      return copy;
    }
    if (value instanceof JSONArray array) {
      JSONArray copy = new JSONArray();
      for (int at = 0; at < array.length(); at++) {
        copy.put(encoded(array.get(at)));
      }
      return copy;
    }
    return value == null ? JSONObject.NULL : value;
  }

  private static JSONObject object(Object... fields) {
    Map<String, Object> map = new HashMap<>();
    for (int at = 0; at < fields.length; at += 2) {
      map.put((String) fields[at], fields[at + 1]);
    }
    return new JSONObject(map);
  }

  private static void report(Object... fields) {
    OUT.println(object(fields));
  }

  private static void report(JSONObject report, Object[] values) {
    try {
      JSONArray args = new JSONArray();
      for (Object value : values) {
        if (!(value instanceof Ack)) {
          args.put(encoded(value));
        }
      }
      OUT.println(report.put("args", args));
    } catch (Exception error) {
      throw new IllegalStateException(error);
    }
  }

  /** The library keeps it to itself. */
  private static String transportOf(Socket socket) throws Exception {
    Object transport = field(field(socket.io(), "engine"), "transport");
    return transport == null ? "" : (String) field(transport, "name");
  }

  private static Object field(Object owner, String name) throws Exception {
    for (Class<?> type = owner.getClass(); type != null; type = type.getSuperclass()) {
      for (Field field : type.getDeclaredFields()) {
        if (field.getName().equals(name)) {
          field.setAccessible(true);
          return field.get(owner);
        }
      }
    }
    throw new NoSuchFieldException(name);
  }
}
