import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.springframework.web.client.RestTemplate;
import org.springframework.web.socket.CloseStatus;
import org.springframework.web.socket.TextMessage;
import org.springframework.web.socket.WebSocketSession;
import org.springframework.web.socket.client.standard.StandardWebSocketClient;
import org.springframework.web.socket.handler.TextWebSocketHandler;
import org.springframework.web.socket.sockjs.client.RestTemplateXhrTransport;
import org.springframework.web.socket.sockjs.client.SockJsClient;
import org.springframework.web.socket.sockjs.client.Transport;
import org.springframework.web.socket.sockjs.client.WebSocketTransport;

/** Spring's SockJsClient: see ../../../README.md. The library doesn't reconnect by itself. */
public final class SpringSockJsClient extends TextWebSocketHandler {
  private static final int RECONNECT_DELAY_MS = 100;
  private static final ScheduledExecutorService later = Executors.newSingleThreadScheduledExecutor();

  private static volatile WebSocketSession session;

  private final SockJsClient client;
  private final String url;
  // The end of a connection may be reported twice: to the handler, and as an error of the attempt to connect.
  private final AtomicBoolean ended = new AtomicBoolean();

  private SpringSockJsClient(SockJsClient client, String url) {
    this.client = client;
    this.url = url;
  }

  public static void main(String[] args) throws Exception {
    SockJsClient client = new SockJsClient(List.of(transport(args[0])));
    client.start();
    for (JsonNode command; (command = Lines.command()) != null; ) {
      switch (command.get("do").asText()) {
        case "connect" -> new SpringSockJsClient(client, command.get("url").asText()).connect();
        case "send" -> session.sendMessage(new TextMessage(command.get("text").asText()));
        default -> throw new IllegalArgumentException(command.toString());
      }
    }
    System.exit(0);
  }

  private static Transport transport(String name) {
    if (name.equals("websocket")) {
      return new WebSocketTransport(new StandardWebSocketClient());
    }
    RestTemplateXhrTransport transport = new RestTemplateXhrTransport(new RestTemplate());
    transport.setXhrStreamingDisabled(name.equals("xhr-polling"));
    return transport;
  }

  private void connect() {
    client.execute(this, url).whenComplete((connected, error) -> {
      if (error != null) {
        end(0, error.toString());
      }
    });
  }

  @Override
  public void afterConnectionEstablished(WebSocketSession connected) {
    session = connected;
    Lines.report("open");
  }

  @Override
  protected void handleTextMessage(WebSocketSession from, TextMessage message) {
    Lines.report("message", "data", message.getPayload());
  }

  @Override
  public void afterConnectionClosed(WebSocketSession closed, CloseStatus status) {
    end(status.getCode(), status.getReason());
  }

  private void end(int code, String reason) {
    if (ended.compareAndSet(false, true)) {
      Lines.report("closed", "code", code, "reason", reason);
      later.schedule(new SpringSockJsClient(client, url)::connect, RECONNECT_DELAY_MS, TimeUnit.MILLISECONDS);
    }
  }
}
