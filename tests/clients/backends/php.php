<?php
// A backend with stentor/backend for the tests: /hooks answers hooks, /psr by PSR-15, /call makes a call, /verify checks a signature.
use Stentor\{Answer, Hooks, HooksHandler, Stentor, StentorException};

spl_autoload_register(function (string $class) {
    $file = __DIR__ . '/../../../clients/backend/php/src/' . str_replace('Stentor\\', '', $class) . '.php';
    if (str_starts_with($class, 'Stentor\\') && is_file($file)) {
        require $file;
    }
});
ini_set('error_log', '/dev/null');

$hooks = new Hooks(getenv('HOOK_SECRET'), [
    'connect' => function (array $question, Answer $answer) {
        $token = $question['client']['token'] ?? null;
        if ($token === 'ada-token') {
            $answer->allow(['user' => '42', 'info' => ['name' => 'Ada']]);
        } elseif ($token === 'greeted') {
            $answer->allow()->emit('welcome', [], ['rooms' => [$question['connection']['session']]]);
        } elseif ($token !== 'undecided') {
            $answer->deny('token_invalid', 'log in first');
        }
    },
    'subscribe' => fn (array $question, Answer $answer) => $question['room'] === 'secret' && !in_array('staff', $question['connection']['rooms'] ?? []) ?: $answer->allow(['ttl' => 60]),
    'events' => [
        'join' => fn (array $question, Answer $answer, string $room) => $answer->join($room)->ack(['joined' => $room])
            ->emit('joined', [$question['user']['id']], ['rooms' => [$room], 'except_sender' => true])->emit('welcome'),
        'leave' => fn (array $question, Answer $answer, string ...$rooms) => $answer->leave(...$rooms)->disconnect(),
        'fail' => fn () => throw new RuntimeException('as the test wants it'),
        'unencodable' => fn (array $question, Answer $answer) => $answer->ack(NAN),
    ],
    'notice' => fn (array $notice) => $notice['notice'] === 'resync' && throw new RuntimeException('as the test wants it'),
]);

$body = file_get_contents('php://input');
$path = $_SERVER['REQUEST_URI'];
header('Content-Type: application/json');
if ($path === '/hooks') {
    [$status, $text] = $hooks->handle($_SERVER['HTTP_STENTOR_SIGNATURE'] ?? null, $body);
    http_response_code($status);
    echo $text;
} elseif ($path === '/psr') {
    require 'Nyholm/Psr7/autoload.php';
    $factory = new Nyholm\Psr7\Factory\Psr17Factory();
    $request = $factory->createServerRequest('POST', '/psr')->withHeader('Stentor-Signature', $_SERVER['HTTP_STENTOR_SIGNATURE'] ?? '')->withBody($factory->createStream($body));
    $response = (new HooksHandler($hooks, $factory, $factory))->handle($request);
    http_response_code($response->getStatusCode());
    echo $response->getBody();
} elseif ($path === '/verify') {
    ['header' => $header, 'body' => $signed, 'secret' => $secret] = json_decode($body, true);
    echo json_encode(['result' => Hooks::verify($header, $signed, $secret)]);
} else {
    [$method, $first, $second, $fields] = json_decode($body, true) + [null, null, null, null];
    $stentor = new Stentor(getenv('STENTOR_ADMIN'), getenv('STENTOR_TOKEN') ?: null, getenv('STENTOR_TIMEOUT_MS') / 1000);
    $all = json_decode($body, true);
    // Options of push are named arguments in PHP.
    $args = $method === 'push' || $method === 'remove' ? [$first, ...($method === 'push' ? [$second] : []), ...($fields ?? [])] : array_slice($all, 1);
    try {
        echo json_encode(['result' => $stentor->$method(...$args)]);
    } catch (StentorException $error) {
        echo json_encode(['error' => ['status' => $error->status, 'code' => $error->reason, 'retry' => $error->retry, 'published' => $error->published]]);
    }
}
