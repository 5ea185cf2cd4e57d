<?php

namespace Stentor;

/** A failed call. `status` is that of HTTP, 0 without an answer; `reason` is for programs; `retry` says that the same call may succeed later. */
final class StentorException extends \RuntimeException
{
    public readonly bool $retry;

    public function __construct(public readonly int $status, public readonly string $reason, string $message, public readonly ?int $published = null)
    {
        parent::__construct($message);
        $this->retry = in_array($status, [0, 408, 503], true) || $reason === 'in_progress';
    }
}
