<?php
// A backend for Stentor's hooks: it says who clients are, and what their events do. docs/hooks.md
//   composer require stentor/backend      # until its first release, with ../../../clients/backend/php as a repository of type "path"
//   HOOK_SECRET=… php server.php [PORT]

use Stentor\{Answer, Hooks};

// From the command line, this file starts PHP's own server, which runs it again for each request. A web server runs it for requests only.
if (PHP_SAPI === 'cli') {
    if (!getenv('HOOK_SECRET')) {
        fwrite(STDERR, "HOOK_SECRET is missing: it is the secret of [[hooks]] in stentor.toml\n");
        exit(1);
    }
    $arguments = ['-S', '127.0.0.1:' . (int) ($argv[1] ?? 9000), __FILE__];
    if (function_exists('pcntl_exec')) {
        // The server takes the place of this process, and so receives its signals.
        pcntl_exec(PHP_BINARY, $arguments);
    }
    exit(proc_close(proc_open([PHP_BINARY, ...$arguments], [STDIN, STDOUT, STDERR], $pipes)));
}

require __DIR__ . '/vendor/autoload.php';

// A real backend looks sessions up.
const USERS = ['ada-token' => '42', 'bob-token' => '43'];

$hooks = new Hooks(getenv('HOOK_SECRET') ?: '', [
    'connect' => function (array $question, Answer $answer) {
        $user = USERS[$question['client']['token'] ?? ''] ?? null;
        $user === null ? $answer->deny('token_invalid', 'log in first') : $answer->allow(['user' => $user]);
    },
    'events' => [
        'join' => function (array $question, Answer $answer, string $room) {
            $user = $question['user']['id'] ?? null;
            if ($user === null || $room !== "user:$user") {
                return $answer->deny('not_allowed', "$room isn't yours");
            }
            return $answer->join($room)->ack(['joined' => $room])->emit('joined', [$user], ['rooms' => [$room]]);
        },
    ],
]);

[$status, $body] = $hooks->handle($_SERVER['HTTP_STENTOR_SIGNATURE'] ?? null, file_get_contents('php://input'));
http_response_code($status);
header('Content-Type: application/json');
echo $body;
