import com.fasterxml.jackson.databind.JsonNode;
import jakarta.websocket.ClientEndpointConfig;
import jakarta.websocket.CloseReason;
import jakarta.websocket.Endpoint;
import jakarta.websocket.EndpointConfig;
import jakarta.websocket.Extension;
import jakarta.websocket.MessageHandler;
import jakarta.websocket.Session;
import java.net.URI;
import java.util.List;
import org.glassfish.tyrus.client.ClientManager;
import org.glassfish.tyrus.ext.extension.deflate.PerMessageDeflateExtension;

/** Tyrus with compression on: see ../../../README.md. It doesn't reconnect. */
public final class TyrusClient extends Endpoint {
  private static volatile Session session;

  public static void main(String[] args) throws Exception {
    for (JsonNode command; (command = Lines.command()) != null; ) {
      switch (command.get("do").asText()) {
        case "connect" -> connect(URI.create(command.get("url").asText()));
        case "send" -> session.getBasicRemote().sendText(command.get("text").asText());
        default -> throw new IllegalArgumentException(command.toString());
      }
    }
    System.exit(0);
  }

  private static void connect(URI url) throws Exception {
    var config = ClientEndpointConfig.Builder.create().extensions(List.of(new PerMessageDeflateExtension())).build();
    session = ClientManager.createClient().connectToServer(new TyrusClient(), config, url);
    boolean compresses = session.getNegotiatedExtensions().stream()
        .map(Extension::getName).anyMatch("permessage-deflate"::equals);
    Lines.report("open", "compresses", compresses);
  }

  @Override
  public void onOpen(Session opened, EndpointConfig config) {
    opened.addMessageHandler(String.class, new MessageHandler.Whole<String>() {
      @Override
      public void onMessage(String text) {
        Lines.report("message", "data", text);
      }
    });
  }

  @Override
  public void onClose(Session closed, CloseReason reason) {
    Lines.report("closed", "code", reason.getCloseCode().getCode(), "reason", reason.getReasonPhrase());
  }
}
