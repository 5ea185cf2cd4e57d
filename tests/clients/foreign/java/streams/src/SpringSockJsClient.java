import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
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

  private final SockJsClient client;
  private final String url;
  private volatile WebSocketSession session;

  private SpringSockJsClient(SockJsClient client, String url) {
    this.client = client;
    this.url = url;
  }

  public static void main(String[] args) throws Exception {
    SockJsClient client = new SockJsClient(List.of(transport(args[0])));
    client.start();
    SpringSockJsClient handler = null;
    for (JsonNode command; (command = Lines.command()) != null; ) {
      switch (command.get("do").asText()) {
        case "connect" -> (handler = new SpringSockJsClient(client, command.get("url").asText())).connect();
        case "send" -> handler.session.sendMessage(new TextMessage(command.get("text").asText()));
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
        Lines.report("closed", "reason", error.toString());
        later.schedule(this::connect, RECONNECT_DELAY_MS, TimeUnit.MILLISECONDS);
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
    Lines.report("closed", "code", status.getCode(), "reason", status.getReason());
    later.schedule(this::connect, RECONNECT_DELAY_MS, TimeUnit.MILLISECONDS);
  }
}
