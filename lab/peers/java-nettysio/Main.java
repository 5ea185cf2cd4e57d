import com.corundumstudio.socketio.Configuration;
import com.corundumstudio.socketio.SocketConfig;
import com.corundumstudio.socketio.SocketIOServer;
import com.corundumstudio.socketio.Transport;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.HashMap;
import java.util.Map;

/**
 * netty-socketio as a peer: echo (the event `message` and its argument to the sender) and chat (to everybody, sender
 * included), by the documented interface, on one thread of netty with epoll.
 */
public final class Main {
    private static final int BYTES_MAX = 16 * 1024 * 1024;

    public static void main(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>(Map.of("--mode", "echo", "--port", "0"));
        for (int i = 0; i + 1 < args.length; i += 2) {
            if (options.put(args[i], args[i + 1]) == null) {
                throw new IllegalArgumentException("there is no option " + args[i]);
            }
        }
        int port = Integer.parseInt(options.get("--port"));
        SocketConfig sockets = new SocketConfig();
        sockets.setAcceptBackLog(4096);
        sockets.setTcpNoDelay(true);
        sockets.setReuseAddress(true);
        Configuration config = new Configuration();
        config.setHostname("127.0.0.1");
        config.setPort(port == 0 ? free() : port);
        config.setSocketConfig(sockets);
        config.setBossThreads(1);
        config.setWorkerThreads(1);
        config.setUseLinuxNativeEpoll(true);
        config.setMaxFramePayloadLength(BYTES_MAX);
        config.setMaxHttpContentLength(BYTES_MAX);
        config.setHttpCompression(false);
        config.setWebsocketCompression(false);
        // Over polling messages overtake each other.
        config.setTransports(Transport.WEBSOCKET);
        SocketIOServer server = new SocketIOServer(config);
        if (options.get("--mode").equals("chat")) {
            server.addEventListener("message", String.class, (client, text, ack) ->
                    server.getBroadcastOperations().sendEvent("message", text));
        } else {
            server.addEventListener("message", String.class, (client, text, ack) -> client.sendEvent("message", text));
        }
        server.start();
        System.out.println("ready http://127.0.0.1:" + config.getPort());
    }

    /** A port that nobody listens at: the server doesn't tell which one the system picked. */
    private static int free() throws Exception {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))) {
            return socket.getLocalPort();
        }
    }
}
