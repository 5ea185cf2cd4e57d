import com.fasterxml.jackson.databind.JsonNode;
import io.netty.bootstrap.Bootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.handler.codec.http.DefaultHttpHeaders;
import io.netty.handler.codec.http.HttpClientCodec;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.websocketx.CloseWebSocketFrame;
import io.netty.handler.codec.http.websocketx.TextWebSocketFrame;
import io.netty.handler.codec.http.websocketx.WebSocketClientHandshakerFactory;
import io.netty.handler.codec.http.websocketx.WebSocketClientProtocolHandler;
import io.netty.handler.codec.http.websocketx.WebSocketClientProtocolHandler.ClientHandshakeStateEvent;
import io.netty.handler.codec.http.websocketx.WebSocketFrame;
import io.netty.handler.codec.http.websocketx.WebSocketVersion;
import io.netty.handler.codec.http.websocketx.extensions.compression.WebSocketClientCompressionHandler;
import java.net.URI;

/** Netty's WebSocket client with compression on: see ../../../README.md. It doesn't reconnect. */
public final class NettyClient extends SimpleChannelInboundHandler<WebSocketFrame> {
  private static final int MESSAGE_BYTES_MAX = 1 << 20;

  private static volatile Channel channel;

  public static void main(String[] args) throws Exception {
    for (JsonNode command; (command = Lines.command()) != null; ) {
      switch (command.get("do").asText()) {
        case "connect" -> connect(URI.create(command.get("url").asText()));
        case "send" -> channel.writeAndFlush(new TextWebSocketFrame(command.get("text").asText()));
        default -> throw new IllegalArgumentException(command.toString());
      }
    }
    System.exit(0);
  }

  private static void connect(URI url) throws Exception {
    var handshaker = WebSocketClientHandshakerFactory.newHandshaker(
        url, WebSocketVersion.V13, null, true, new DefaultHttpHeaders(), MESSAGE_BYTES_MAX);
    var pipeline = new ChannelInitializer<SocketChannel>() {
      @Override
      protected void initChannel(SocketChannel opened) {
        opened.pipeline().addLast(
            new HttpClientCodec(),
            new HttpObjectAggregator(MESSAGE_BYTES_MAX),
            new WebSocketClientCompressionHandler(MESSAGE_BYTES_MAX),
            new WebSocketClientProtocolHandler(handshaker, false),
            new NettyClient());
      }
    };
    var bootstrap = new Bootstrap().group(new NioEventLoopGroup(1)).channel(NioSocketChannel.class).handler(pipeline);
    channel = bootstrap.connect(url.getHost(), url.getPort()).sync().channel();
  }

  @Override
  public void userEventTriggered(ChannelHandlerContext context, Object event) {
    if (event == ClientHandshakeStateEvent.HANDSHAKE_COMPLETE) {
      boolean compresses = context.pipeline().toMap().values().stream()
          .anyMatch(handler -> handler.getClass().getSimpleName().equals("PerMessageDeflateEncoder"));
      Lines.report("open", "compresses", compresses);
    }
  }

  @Override
  protected void channelRead0(ChannelHandlerContext context, WebSocketFrame frame) {
    if (frame instanceof TextWebSocketFrame text) {
      Lines.report("message", "data", text.text());
    } else if (frame instanceof CloseWebSocketFrame close) {
      Lines.report("closed", "code", close.statusCode(), "reason", close.reasonText());
    }
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext context, Throwable error) {
    Lines.report("closed", "code", 0, "reason", error.toString());
    context.close();
  }
}
