// Certificates of tests, which nobody has signed.
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import tls from 'node:tls';
import { event } from './harness.mjs';

const openssl = (...args) => execFileSync('openssl', args, { stdio: 'ignore' });

/** Writes a certificate for a name and 127.0.0.1, and its key, in place of those there are: { key, certificate }, names of files. */
export function certificate(folder, name = 'localhost') {
  const [key, certificate] = ['key', 'pem'].map((kind) => path.join(folder, `${name}.${kind}`));
  openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', `/CN=${name}`,
    '-addext', `subjectAltName=DNS:${name},IP:127.0.0.1`, '-addext', 'basicConstraints=critical,CA:FALSE', '-keyout', key, '-out', certificate);
  return { key, certificate };
}

/** Writes a key that is not that of the certificate. */
export const otherKey = (key) => openssl('genpkey', '-algorithm', 'EC', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-out', key);

/** The fingerprint of the certificate that a port of this machine shows. */
export async function fingerprint(url) {
  const socket = tls.connect({ port: new URL(url).port, host: '127.0.0.1', rejectUnauthorized: false });
  await event(socket, 'secureConnect', undefined, 'error');
  const { fingerprint256 } = socket.getPeerCertificate();
  socket.destroy();
  return fingerprint256;
}
