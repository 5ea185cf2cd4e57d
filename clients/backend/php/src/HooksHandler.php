<?php

namespace Stentor;

use Psr\Http\Message\ResponseFactoryInterface;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamFactoryInterface;
use Psr\Http\Server\RequestHandlerInterface;

/** Hooks as a request handler of PSR-15, with the factories of PSR-17. */
final class HooksHandler implements RequestHandlerInterface
{
    public function __construct(
        private readonly Hooks $hooks,
        private readonly ResponseFactoryInterface $responses,
        private readonly StreamFactoryInterface $streams,
    ) {
    }

    public function handle(ServerRequestInterface $request): ResponseInterface
    {
        [$status, $body] = $this->hooks->handle($request->getHeaderLine('Stentor-Signature'), (string) $request->getBody());
        return $this->responses->createResponse($status)->withHeader('Content-Type', 'application/json')->withBody($this->streams->createStream($body));
    }
}
