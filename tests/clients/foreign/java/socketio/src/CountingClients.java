import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.socket.client.Ack;
import io.socket.client.IO;
import io.socket.client.Socket;
import io.socket.thread.EventThread;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import okhttp3.Dispatcher;
import okhttp3.OkHttpClient;

/** Many clients of socket.io-client in one process, which count: see ../../../README.md. All runs on the library's one thread. */
public final class CountingClients {
  private static final String[][] TRANSPORTS = {{"polling"}, {"websocket"}, {"polling", "websocket"}};
  /** Clients that connect, and clients that have events in flight, at the same time; events of each. */
  private static final int CONNECTING = 20;
  private static final int SENDERS = 8;
  private static final int BURST = 3;

  private static final ObjectMapper JSON = new ObjectMapper();
  private static final List<Client> clients = new ArrayList<>();
  private static boolean isOver;
  private static int next;

  public static void main(String[] args) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    CountDownLatch stopped = null;
    for (String line; (line = lines.readLine()) != null; ) {
      JsonNode command = JSON.readTree(line);
      switch (command.get("do").asText()) {
        case "connect" -> {
          connect(command.get("url").asText(), command.get("first").asInt(), command.get("count").asInt());
          report(Map.of("type", "connected"));
          CountDownLatch senders = new CountDownLatch(Math.min(SENDERS, clients.size()));
          stopped = senders;
          EventThread.exec(() -> {
            for (long left = senders.getCount(); left > 0; left--) {
              send(senders);
            }
          });
        }
        case "stop" -> {
          EventThread.exec(() -> isOver = true);
          stopped.await();
          CountDownLatch finished = new CountDownLatch(clients.size());
          EventThread.exec(() -> clients.forEach(client -> client.finish(finished)));
          finished.await();
          report(Map.of("type", "result", "clients", clients.stream().map(Client::result).toList()));
        }
        default -> throw new IllegalArgumentException(line);
      }
    }
    // The library's threads outlive the last command.
    System.exit(0);
  }

  private static void connect(String url, int first, int count) throws Exception {
    Dispatcher dispatcher = new Dispatcher();
    dispatcher.setMaxRequests(Integer.MAX_VALUE);
    dispatcher.setMaxRequestsPerHost(Integer.MAX_VALUE);
    // The library's own time-out; without any, OkHttp ends a long poll after 10 s.
    OkHttpClient http = new OkHttpClient.Builder().dispatcher(dispatcher).readTimeout(1, TimeUnit.MINUTES).build();
    for (int at = 0; at < count; at += CONNECTING) {
      CountDownLatch connected = new CountDownLatch(Math.min(CONNECTING, count - at));
      for (int n = at; n < Math.min(count, at + CONNECTING); n++) {
        clients.add(new Client(URI.create(url), first + n, http, connected));
      }
      connected.await();
    }
  }

  private static void send(CountDownLatch senders) {
    if (isOver) {
      senders.countDown();
    } else {
      clients.get(next++ % clients.size()).burst(() -> send(senders));
    }
  }

  private static void report(Object report) throws Exception {
    System.out.println(JSON.writeValueAsString(report));
  }

  private static final class Client {
    private final int number;
    private final Socket socket;
    private final List<Object> counted = new ArrayList<>();
    private final List<String> failures = new ArrayList<>();
    private int sent;
    private CountDownLatch finished;

    Client(URI url, int number, OkHttpClient http, CountDownLatch connected) {
      this.number = number;
      IO.Options options = new IO.Options();
      options.forceNew = true;
      options.transports = TRANSPORTS[number % TRANSPORTS.length];
      options.callFactory = http;
      options.webSocketFactory = http;
      socket = IO.socket(url, options);
      socket.on(Socket.EVENT_CONNECT, nothing -> connected.countDown());
      for (String event : new String[] {Socket.EVENT_DISCONNECT, "connect_error"}) {
        socket.on(event, reason -> failures.add(event + ": " + (reason.length == 0 ? "" : reason[0])));
      }
      socket.on("counted", values -> {
        counted.add(values[0]);
        check();
      });
      socket.connect();
    }

    /** Sends events, and runs `then` when all are answered. */
    void burst(Runnable then) {
      int[] left = {BURST};
      for (int i = 0; i < BURST; i++) {
        Ack answer = nothing -> {
          if (--left[0] == 0) {
            then.run();
          }
        };
        socket.emit("count", new Object[] {number, sent++}, answer);
      }
    }

    void finish(CountDownLatch latch) {
      burst(() -> {
        finished = latch;
        check();
      });
    }

    private void check() {
      if (finished != null && counted.size() >= sent) {
        finished.countDown();
        finished = null;
      }
    }

    Map<String, Object> result() {
      Map<String, Object> result = new LinkedHashMap<>();
      result.put("number", number);
      result.put("sent", sent);
      result.put("counted", counted);
      result.put("failures", failures);
      return result;
    }
  }
}
