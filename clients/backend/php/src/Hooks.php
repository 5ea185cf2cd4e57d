<?php

namespace Stentor;

/**
 * Answers hooks; docs/hooks.md describes the fields. Handlers get the question as an array, and its answer: `connect`, `subscribe`, `publish`, `event`,
 * and in `events` by name, whose handlers also get the event's arguments. `notice` gets each notice. A handler that throws denies its own question only;
 * if that of notices throws, Stentor sends them again.
 */
final class Hooks
{
    /** Hooks whose signature is older are refused, in seconds. */
    private const SIGNATURE_AGE_MAX = 300;
    private const FAILURE = 'the backend has failed';

    private readonly array $secrets;

    /** @param array<string, callable|array<string, callable>> $handlers */
    public function __construct(#[\SensitiveParameter] string|array $secret, private readonly array $handlers)
    {
        $this->secrets = (array) $secret;
        if (!$this->secrets || in_array('', $this->secrets, true)) {
            throw new \InvalidArgumentException('Hooks: the secret is missing: it is the `secret` of [[hooks]] in stentor.toml');
        }
    }

    /** Whether a hook's request is Stentor's: its `Stentor-Signature`, its body as received, and the secret or several of them. */
    public static function verify(?string $signature, string $body, #[\SensitiveParameter] string|array $secrets, ?float $now = null): bool
    {
        if (!preg_match('/\At=([0-9]{1,15}),v1=([0-9a-f]{64})\z/', $signature ?? '', $match) || abs(($now ?? time()) - (int) $match[1]) > self::SIGNATURE_AGE_MAX) {
            return false;
        }
        $known = array_filter((array) $secrets, fn ($secret) => $secret !== '' && hash_equals(hash_hmac('sha256', "$match[1].$body", $secret), $match[2]));
        return $known !== [];
    }

    /**
     * Answers a request, from its signature and its body as received: the status and the body.
     *
     * @return array{int, string}
     */
    public function handle(?string $signature, string $body): array
    {
        if (!self::verify($signature, $body, $this->secrets)) {
            return [401, '{"message":"the signature is missing, wrong or too old"}'];
        }
        $request = json_decode($body, true);
        if (!is_array($request)) {
            return [400, '{"message":"the body isn\'t JSON"}'];
        }
        try {
            foreach ($request['notices'] ?? [] as $notice) {
                ($this->handlers['notice'] ?? fn () => null)($notice, $request['node'] ?? null);
            }
        } catch (\Throwable $error) {
            error_log("the handler of notices has failed: $error");
            return [500, json_encode(['message' => self::FAILURE])];
        }
        return [200, json_encode(['answers' => array_map($this->answer(...), $request['questions'] ?? [])], JSON_THROW_ON_ERROR)];
    }

    private function answer(array $question): array
    {
        ['id' => $id, 'hook' => $hook] = $question;
        $isEvent = $hook === 'event';
        $answer = new Answer();
        try {
            $own = $isEvent ? $this->handlers['events'][$question['event']] ?? null : null;
            $other = in_array($hook, ['connect', 'subscribe', 'publish', 'event'], true) ? $this->handlers[$hook] ?? null : null;
            if (!$isEvent) {
                $answer->deny();
            }
            if ($own) {
                $own($question, $answer, ...array_values($question['arguments']));
            } elseif ($other) {
                $other($question, $answer);
            } else {
                $answer->deny($isEvent ? 'unknown_event' : 'not_allowed');
            }
            // What can't be encoded would fail the other questions.
            json_encode($answer->fields, JSON_THROW_ON_ERROR);
            return ['id' => $id] + $answer->fields;
        } catch (\Throwable $error) {
            error_log("the handler of a hook has failed: $hook " . ($question['event'] ?? '') . ": $error");
            return ['id' => $id, 'allow' => false, 'code' => 'internal', 'message' => self::FAILURE];
        }
    }
}
