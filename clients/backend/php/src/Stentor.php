<?php

namespace Stentor;

/** The admin API; docs/admin-api.md describes the fields. `$target` names sessions: `rooms`, `sessions`, `namespace`, `except`. */
final class Stentor
{
    private readonly string $url;

    public function __construct(string $url = 'http://127.0.0.1:8001', #[\SensitiveParameter] private readonly ?string $token = null, private readonly float $timeoutSeconds = 10)
    {
        $this->url = rtrim($url, '/');
    }

    public function publish(string $room, mixed $data, array $fields = []): array
    {
        return $this->post('publish', ['room' => $room, 'data' => $data] + $fields);
    }

    public function publishAll(array $messages): array
    {
        return $this->call('POST', 'publish', implode('', array_map(fn ($message) => self::json($message) . "\n", $messages)), 'application/x-ndjson');
    }

    public function emit(array $target, string $event, mixed ...$args): array
    {
        return $this->post('emit', ['event' => $event, 'args' => $args] + $target, self::waitSeconds($target['ack']['timeout'] ?? null));
    }

    public function join(array $target, array $rooms): array
    {
        return $this->post('join', ['join' => $rooms] + $target);
    }

    public function leave(array $target, array $rooms): array
    {
        return $this->post('leave', ['leave' => $rooms] + $target);
    }

    public function disconnect(array $target, array $fields = []): array
    {
        return $this->post('disconnect', $fields + $target);
    }

    public function sessions(array $target, array $fields = []): array
    {
        return $this->post('sessions', $fields + $target);
    }

    public function revoke(array $fields): array
    {
        return $this->post('revocations', $fields);
    }

    /** The document as a JSON value; with another `$type`, as a string. */
    public function push(string $key, mixed $document, ?int $sequence = null, string $type = 'application/json'): array
    {
        return $this->call('PUT', self::feed($key, $sequence), $type === 'application/json' ? self::json($document) : $document, $type);
    }

    public function remove(string $key, ?int $sequence = null): array
    {
        return $this->call('DELETE', self::feed($key, $sequence));
    }

    private function post(string $operation, array $fields, float $waitSeconds = 0): array
    {
        return $this->call('POST', $operation, self::json((object) $fields), 'application/json', $waitSeconds);
    }

    private function call(string $method, string $path, string $body = '', ?string $type = null, float $waitSeconds = 0): array
    {
        $headers = array_filter([$type ? "Content-Type: $type" : null, $this->token ? "Authorization: Bearer $this->token" : null, 'Connection: close']);
        $options = ['method' => $method, 'header' => $headers, 'content' => $body, 'timeout' => $this->timeoutSeconds + $waitSeconds, 'ignore_errors' => true, 'follow_location' => 0];
        error_clear_last();
        $text = @file_get_contents("$this->url/api/v1/$path", false, stream_context_create(['http' => $options]));
        // PHP names the headers of the last response so.
        $head = implode("\n", $text === false ? [] : $http_response_header ?? []);
        $length = preg_match('/^Content-Length: *(\d+)/mi', $head, $match) ? (int) $match[1] : 0;
        if (!preg_match('~^HTTP/\S+ (\d{3})~', $head, $match) || strlen($text) < $length) {
            throw new StentorException(0, 'unreachable', "$this->url doesn't answer: " . (error_get_last()['message'] ?? 'the connection ended'));
        }
        $status = (int) $match[1];
        $answer = json_decode($text, true);
        $failure = $answer['error'] ?? null;
        if ($status === 200 && !$failure && is_array($answer)) {
            return $answer;
        }
        $failure ??= is_array($answer) ? $answer : [];
        throw new StentorException($status, $failure['code'] ?? 'unexpected', $failure['message'] ?? substr($text, 0, 200), $answer['published'] ?? null);
    }

    /** The time that Stentor waits for acknowledgements before it answers. It refuses more than `60s`, and what isn't a duration. */
    private static function waitSeconds(mixed $timeout): float
    {
        $isDuration = is_string($timeout) && preg_match('/\A(\d{1,9}) *(m?s)\z/', $timeout, $match);
        return $isDuration ? min((int) $match[1] / ($match[2] === 's' ? 1 : 1000), 60) : 0;
    }

    private static function feed(string $key, ?int $sequence): string
    {
        return 'feeds/' . implode('/', array_map(rawurlencode(...), explode('/', $key))) . ($sequence === null ? '' : "?sequence=$sequence");
    }

    private static function json(mixed $value): string
    {
        return json_encode($value, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_PRESERVE_ZERO_FRACTION);
    }
}
