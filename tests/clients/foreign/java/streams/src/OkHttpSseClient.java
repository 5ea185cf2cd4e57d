import com.fasterxml.jackson.databind.JsonNode;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.Response;
import okhttp3.sse.EventSource;
import okhttp3.sse.EventSourceListener;
import okhttp3.sse.EventSources;

/** okhttp-sse: see ../../../README.md. The library doesn't reconnect by itself. */
public final class OkHttpSseClient extends EventSourceListener {
  private static final int RECONNECT_DELAY_MS = 100;
  private static final OkHttpClient http = new OkHttpClient.Builder().readTimeout(0, TimeUnit.SECONDS).build();
  private static final ScheduledExecutorService later = Executors.newSingleThreadScheduledExecutor();

  private final String url;
  private String lastId;

  private OkHttpSseClient(String url) {
    this.url = url;
  }

  public static void main(String[] args) throws Exception {
    for (JsonNode command; (command = Lines.command()) != null; ) {
      new OkHttpSseClient(command.get("url").asText()).connect();
    }
    System.exit(0);
  }

  private void connect() {
    Request.Builder request = new Request.Builder().url(url);
    if (lastId != null) {
      request.header("Last-Event-ID", lastId);
    }
    EventSources.createFactory(http).newEventSource(request.build(), this);
  }

  @Override
  public void onOpen(EventSource source, Response response) {
    Lines.report("open");
  }

  @Override
  public void onEvent(EventSource source, String id, String name, String data) {
    lastId = id == null ? lastId : id;
    Lines.report("message", "name", name, "data", data, "id", id);
  }

  @Override
  public void onClosed(EventSource source) {
    ended("the stream ended");
  }

  @Override
  public void onFailure(EventSource source, Throwable error, Response response) {
    ended(String.valueOf(error != null ? error : response));
  }

  private void ended(String reason) {
    Lines.report("closed", "reason", reason);
    later.schedule(this::connect, RECONNECT_DELAY_MS, TimeUnit.MILLISECONDS);
  }
}
