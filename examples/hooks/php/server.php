<?php
// A backend for Stentor's hooks: it says who clients are, and what their events do. docs/hooks.md
//   HOOK_SECRET=… php -S 127.0.0.1:9000 server.php

// A real backend looks sessions up.
const USERS = ['ada-token' => '42', 'bob-token' => '43'];

function connect(array $question): array
{
    $user = USERS[$question['client']['token'] ?? ''] ?? null;
    return $user === null
        ? ['allow' => false, 'code' => 'token_invalid', 'message' => 'log in first']
        : ['allow' => true, 'user' => $user];
}

function event(array $question): array
{
    if ($question['event'] !== 'join') {
        return ['allow' => false, 'code' => 'unknown_event'];
    }
    $room = $question['arguments'][0] ?? null;
    if (!is_string($room)) {
        throw new InvalidArgumentException('not a room');
    }
    $user = $question['user']['id'] ?? null;
    if ($user === null || $room !== "user:$user") {
        return ['allow' => false, 'code' => 'not_allowed', 'message' => "$room isn't yours"];
    }
    $joined = ['event' => 'joined', 'arguments' => [$user], 'rooms' => [$room]];
    return ['join' => [$room], 'ack' => [['joined' => $room]], 'emit' => [$joined]];
}

// One question that can't be answered mustn't fail the others.
function answer(array $question): array
{
    try {
        return ['id' => $question['id']] + ['connect' => connect(...), 'event' => event(...)][$question['hook']]($question);
    } catch (Throwable) {
        return ['id' => $question['id'], 'allow' => false, 'code' => 'bad_request'];
    }
}

function is_signed(string $header, string $body): bool
{
    if (!preg_match('/^t=(\d+),v1=([0-9a-f]{64})$/', $header, $match) || abs(time() - (int) $match[1]) > 300) {
        return false;
    }
    return hash_equals(hash_hmac('sha256', "$match[1].$body", getenv('HOOK_SECRET')), $match[2]);
}

$body = file_get_contents('php://input');
if (!is_signed($_SERVER['HTTP_STENTOR_SIGNATURE'] ?? '', $body)) {
    http_response_code(401);
    return;
}
header('content-type: application/json');
echo json_encode(['answers' => array_map(answer(...), json_decode($body, true)['questions'])]);
