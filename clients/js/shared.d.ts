// Types of @stentor/client/shared. See README.md, "Tabs that share a connection".

import type { Client, ConnectOptions, Untyped } from '@stentor/client';

/**
 * Connects as `connect()` does. All tabs of the browser that connect to the same address with the same options, and whose user the server takes for the
 * same, share one connection for each transport. Where the browser has no BroadcastChannel or no Web Locks, each tab has its own.
 */
export declare function connectShared<Events extends object = Untyped, Documents extends object = Untyped>(
  url?: string | URL | null,
  options?: ConnectOptions,
): Client<Events, Documents>;
