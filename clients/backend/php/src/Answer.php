<?php

namespace Stentor;

/** The answer to a question. Without `allow()`, clients may not connect, subscribe or publish; events are accepted without it. */
final class Answer
{
    public array $fields = [];

    public function allow(array $fields = []): self
    {
        unset($this->fields['code'], $this->fields['message'], $this->fields['retry']);
        return $this->set(['allow' => true] + $fields);
    }

    public function deny(string $code = 'not_allowed', ?string $message = null, ?bool $retry = null): self
    {
        return $this->set(['allow' => false, 'code' => $code] + array_filter(['message' => $message, 'retry' => $retry], fn ($value) => $value !== null));
    }

    public function join(string ...$rooms): self
    {
        return $this->add('join', $rooms);
    }

    public function leave(string ...$rooms): self
    {
        return $this->add('leave', $rooms);
    }

    public function ack(mixed ...$args): self
    {
        return $this->set(['ack' => $args]);
    }

    /** `$target`: `rooms` (also ids of sessions), `all`, `except_sender` and `volatile`; without rooms, the client itself. */
    public function emit(string $event, array $args = [], array $target = []): self
    {
        return $this->add('emit', [['event' => $event, 'arguments' => $args] + $target]);
    }

    public function disconnect(): self
    {
        return $this->set(['disconnect' => true]);
    }

    private function set(array $fields): self
    {
        $this->fields = $fields + $this->fields;
        return $this;
    }

    private function add(string $name, array $more): self
    {
        return $this->set([$name => [...($this->fields[$name] ?? []), ...$more]]);
    }
}
