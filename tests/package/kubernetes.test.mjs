// The manifests of docs/deploy/kubernetes and the chart of docs/deploy/helm: valid by the schemas of Kubernetes, consistent with each other, and with settings
// with which Stentor runs.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { environment, example, talk, user } from '../clients/chat.mjs';
import { binary, introduced, program, serve, statusOf, temporary, until } from '../clients/harness.mjs';
import { freePorts } from '../clients/proxies.mjs';
import { missing as withoutRedis, redis } from '../clients/redis.mjs';
import { stopwatch } from './roots.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const manifests = path.resolve(here, '../../docs/deploy/kubernetes');
const programs = path.join(here, '.venv/bin');
const skip = !existsSync(programs) && 'run scripts/setup-tests';

const files = readdirSync(manifests).filter((name) => name.endsWith('.yaml')).map((name) => path.join(manifests, name));
const workers = path.join(manifests, 'workers/chat.yaml');
const cluster = path.join(manifests, 'cluster/stentor.yaml');
const ingress = path.join(manifests, 'ingress-nginx/ingress.yaml');
const istio = path.join(manifests, 'istio/stentor.yaml');
const definitions = path.join(here, 'istio/build/crds.yaml');
const operator = path.join(manifests, 'prometheus-operator/servicemonitor.yaml');

const validate = (version, ...files) => spawnSync(path.join(programs, 'kubernetes-validate'), ['--strict', '--quiet', '-k', version, ...files], { encoding: 'utf8' });

/** All objects of YAML files. */
function objects(...files) {
  const code = 'import json, sys, yaml; json.dump([o for f in sys.argv[1:] for o in yaml.safe_load_all(open(f)) if o], sys.stdout)';
  const { status, stdout, stderr } = spawnSync(path.join(programs, 'python'), ['-c', code, ...files], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
}

/** The parts of the manifests that others refer to. */
function parts(...from) {
  const all = objects(...from);
  const one = (kind, name = 'stentor') => all.find((object) => object.kind === kind && object.metadata.name === name);
  const deployment = one('Deployment');
  const pod = deployment.spec.template.spec;
  return { all, one, deployment, pod, container: pod.containers[0] };
}

const mebibytes = (text) => Number.parseInt(text, 10) * (/Gi(B?)$/.test(text) ? 1024 : 1);

test('the manifests fit the schemas of Kubernetes 1.30 and 1.37, and a typing error does not', { skip }, (t) => {
  for (const version of ['1.30', '1.37']) {
    const { status, stdout, stderr } = validate(version, ...files, workers, cluster, ingress);
    assert.equal(status, 0, stdout + stderr);
  }
  const folder = temporary(t);
  const wrong = path.join(folder, 'deployment.yaml');
  writeFileSync(wrong, readFileSync(path.join(manifests, 'deployment.yaml'), 'utf8').replace('readinessProbe:', 'readynessProbe:'));
  assert.notEqual(validate('1.37', wrong).status, 0);
});

test('the manifests name each other correctly', { skip }, () => {
  const { all, one, deployment, pod, container } = parts(...files);
  assert.deepEqual(all.map(({ kind }) => kind).sort(), ['ConfigMap', 'Deployment', 'PodDisruptionBudget', 'Service', 'Service']);
  const { labels } = deployment.spec.template.metadata;
  const ports = container.ports.map(({ name }) => name);
  assert.deepEqual(deployment.spec.selector.matchLabels, labels);
  assert.deepEqual(one('PodDisruptionBudget').spec.selector.matchLabels, labels);
  for (const service of ['stentor', 'stentor-admin'].map((name) => one('Service', name))) {
    assert.deepEqual(service.spec.selector, labels);
    for (const { targetPort } of service.spec.ports) assert.ok(ports.includes(targetPort), targetPort);
  }
  assert.deepEqual(one('Service').spec.ports.map(({ targetPort }) => targetPort), ['clients'], 'clients do not reach the admin port');
  assert.ok(one('ConfigMap', pod.volumes[0].configMap.name).data['stentor.toml']);
  assert.equal(container.args[2], `${container.volumeMounts[0].mountPath}/stentor.toml`);

  const { service } = objects(ingress)[0].spec.rules[0].http.paths[0].backend;
  assert.ok(one('Service', service.name).spec.ports.some(({ name }) => name === service.port.name));

  const [monitor] = objects(operator);
  const admin = one('Service', 'stentor-admin');
  for (const [name, value] of Object.entries(monitor.spec.selector.matchLabels)) assert.equal(admin.metadata.labels[name], value);
  assert.equal(one('Service').metadata.labels['app.kubernetes.io/component'], undefined, 'the monitor selects the admin service only');
  const [endpoint] = monitor.spec.endpoints;
  assert.ok(admin.spec.ports.some(({ name }) => name === endpoint.port));
  const { secretKeyRef } = container.env.find(({ name }) => name === 'STENTOR_SERVER_ADMIN_TOKEN').valueFrom;
  assert.deepEqual(endpoint.authorization.credentials, secretKeyRef);
});

test("Istio's objects fit its schemas, lead to the Service, and have the times of Envoy's file", { skip: skip || (!existsSync(definitions) && 'run scripts/setup-tests') }, (t) => {
  const check = (file) => spawnSync(path.join(programs, 'python'), [path.join(here, 'istio/validate.py'), definitions, file], { encoding: 'utf8' });
  const { status, stdout, stderr } = check(istio);
  assert.equal(status, 0, stdout + stderr);
  const wrong = path.join(temporary(t), 'istio.yaml');
  writeFileSync(wrong, readFileSync(istio, 'utf8').replace('idleTimeout:', 'idletimeout:'));
  assert.match(check(wrong).stdout, /'idletimeout' was unexpected/);

  const [gateway, { spec: { hosts, gateways, http: [route] } }, { spec: { host, trafficPolicy: { connectionPool } } }] = objects(istio);
  assert.deepEqual([gateways, hosts], [[gateway.metadata.name], gateway.spec.servers[0].hosts]);
  const { one } = parts(...files);
  const service = one('Service');
  for (const name of [host, route.route[0].destination.host]) assert.equal(name, `${service.metadata.name}.default.svc.cluster.local`);
  assert.equal(route.route[0].destination.port.number, service.spec.ports[0].port);
  const envoy = readFileSync(path.join(manifests, '../envoy.yaml'), 'utf8');
  for (const line of [`timeout: ${route.timeout}`, `connect_timeout: ${connectionPool.tcp.connectTimeout}`, `idle_timeout: ${connectionPool.http.idleTimeout}`]) assert.ok(envoy.includes(line), line);
});

test('the pod has no privileges, time to shut down, and memory for its limit', { skip }, () => {
  const { one, pod, container } = parts(...files);
  const { securityContext } = container;
  assert.deepEqual([pod.securityContext.runAsNonRoot, pod.securityContext.seccompProfile.type], [true, 'RuntimeDefault']);
  assert.ok(pod.securityContext.runAsUser > 0);
  assert.deepEqual([securityContext.allowPrivilegeEscalation, securityContext.readOnlyRootFilesystem, securityContext.capabilities.drop], [false, true, ['ALL']]);
  assert.deepEqual([pod.automountServiceAccountToken, pod.enableServiceLinks], [false, false]);

  const keys = spawnSync(binary, ['keys'], { encoding: 'utf8' }).stdout;
  const seconds = (key) => {
    const [, number, unit] = new RegExp(`^\\| \`${key}\` \\| \`"(\\d+)(ms|s)"\``, 'm').exec(keys);
    return Number(number) / (unit === 'ms' ? 1000 : 1);
  };
  const stops_s = container.lifecycle.preStop.sleep.seconds + seconds('drain_delay') + seconds('drain_window') + seconds('shutdown_timeout');
  assert.ok(pod.terminationGracePeriodSeconds > stops_s, `${pod.terminationGracePeriodSeconds} s are not more than ${stops_s} s`);
  const { periodSeconds, failureThreshold } = container.livenessProbe;
  assert.ok(periodSeconds * failureThreshold > pod.terminationGracePeriodSeconds);

  const [, budget] = /^memory_bytes_max = "(\d+MiB|\d+GiB)"$/m.exec(one('ConfigMap').data['stentor.toml']);
  assert.ok(mebibytes(budget) * 2 < mebibytes(container.resources.limits.memory), `${budget} of ${container.resources.limits.memory}`);
});

test('Stentor runs with the settings of the Deployment, answers its probes, and ends within the grace period', { skip }, async (t) => {
  const { one, pod, container } = parts(...files);
  const token = 'the-token-of-the-secret';
  const env = Object.fromEntries(container.env.map(({ name, value }) => [name, value ?? token]));
  // Only the ports differ, which flags set.
  const admin = 'stentor-admin.default.svc';
  const server = await serve(t, {
    command: ['env', ...Object.entries(env).map(([name, value]) => `${name}=${value}`), binary],
    listen: '0.0.0.0:0',
    admin: '0.0.0.0:0',
    config: one('ConfigMap').data['stentor.toml'],
  });
  const { port: clients } = new URL(server.http);
  assert.deepEqual(server.log.map((line) => JSON.parse(line)).filter(({ level }) => level === 'WARN' || level === 'ERROR'), []);
  for (const { httpGet } of [container.readinessProbe, container.livenessProbe]) {
    const [{ containerPort }] = container.ports.filter(({ name }) => name === httpGet.port);
    assert.equal(containerPort, 8000);
    assert.equal((await fetch(`http://127.0.0.1:${clients}${httpGet.path}`)).status, 200);
  }
  const [endpoint] = objects(operator)[0].spec.endpoints;
  const scrape = (headers) => statusOf(server.admin, endpoint.path, { Host: `${admin}:8001`, ...headers });
  assert.equal(await scrape({}), 401);
  assert.equal(await scrape({ Authorization: `Bearer ${token}` }), 200);
  // The scraper of a pod uses its address; another name is refused.
  assert.equal(await statusOf(server.admin, endpoint.path, { Host: 'other', Authorization: `Bearer ${token}` }), 421);
  const ended_s = stopwatch();
  server.child.kill('SIGTERM');
  assert.equal((await server.closed)[0], 0);
  assert.ok(ended_s() < pod.terminationGracePeriodSeconds);
});

test('a rollout of workers, with the settings of their Deployment: users notice nothing', { skip }, async (t) => {
  const [deployment, service] = objects(workers);
  const { strategy, replicas, selector, template } = deployment.spec;
  const [container] = template.spec.containers;
  assert.deepEqual(strategy, { type: 'RollingUpdate', rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } });
  for (const labels of [selector.matchLabels, service.spec.selector]) assert.deepEqual(labels, template.metadata.labels);
  const [, admin] = objects(path.join(manifests, 'service.yaml'));
  const values = Object.fromEntries(container.env.map(({ name, value }) => [name, value]));
  assert.equal(values.STENTOR, `ws://${admin.metadata.name}:${admin.spec.ports[0].port}`);
  assert.ok(template.spec.terminationGracePeriodSeconds > container.lifecycle.preStop.sleep.seconds + 10);
  assert.deepEqual(container.ports.map(({ name, containerPort }) => [name, `${containerPort}`]), [['pages', values.PORT]]);

  // The application's token, which the Secret has.
  const token = 'the-token-of-the-workers';
  const folder = example(t);
  const config = `${readFileSync(path.join(folder, 'stentor.toml'), 'utf8')}token = "${token}"\n`;
  const stentor = await serve(t, { config, command: ['env', 'STENTOR_SERVER_ADMIN_TOKEN=another-token-for-admins', binary] });
  const { httpGet } = container.readinessProbe;
  const start = async () => {
    const [port] = await freePorts(1);
    const [command, ...args] = container.command;
    const secret = Object.fromEntries(container.env.filter(({ valueFrom }) => valueFrom?.secretKeyRef).map(({ name }) => [name, token]));
    const pod = program(t, command, args, { cwd: folder, env: { ...process.env, ...values, ...environment(stentor, port), ...secret } });
    await until('the pod is ready', async () => (await fetch(`http://127.0.0.1:${port}${httpGet.path}`).catch(() => ({}))).status === 200);
    return pod;
  };
  const pods = [];
  for (let n = 0; n < replicas; n++) pods.push(await start());
  const users = talk(t, stentor.http);
  await users.more(20);
  for (const old of pods) {
    await start();
    await old.end();
    assert.equal(old.child.exitCode, 0);
    await users.more(20);
  }
  await users.stop();
});

test('several pods of Stentor with a worker beside each: one application, and users of a pod that ends reconnect to the other', { skip: skip || withoutRedis }, async (t) => {
  const { all, one, deployment, pod, container } = parts(cluster);
  const [worker] = pod.initContainers;
  const { labels } = deployment.spec.template.metadata;
  for (const { spec } of all.filter(({ kind }) => kind === 'Service')) {
    assert.deepEqual(spec.selector, labels);
    const ports = [container, worker].flatMap(({ ports }) => ports.map(({ name }) => name));
    for (const { targetPort } of spec.ports) assert.ok(ports.includes(targetPort) && targetPort !== 'nodes', targetPort);
  }
  assert.deepEqual([deployment.spec.selector.matchLabels, one('PodDisruptionBudget').spec.selector.matchLabels], [labels, labels]);
  // A sidecar ends after the other containers of its pod.
  assert.equal(worker.restartPolicy, 'Always');
  assert.ok(pod.terminationGracePeriodSeconds > container.lifecycle.preStop.sleep.seconds + 15 + 10);
  assert.ok(container.livenessProbe.periodSeconds * container.livenessProbe.failureThreshold > pod.terminationGracePeriodSeconds);
  // Settings beyond those of a single pod are in the files for one.
  const single = parts(...files).container;
  const own = /^(STENTOR_CLUSTER_|STENTOR_TOKEN$|POD_IP$)/;
  assert.deepEqual(container.env.filter(({ name }) => !own.test(name)), single.env);

  const secrets = { token: 'the-token-of-the-admins', 'worker-token': 'the-token-of-the-workers', secret: 'the-secret-of-the-nodes', engine: (await redis(t)).url };
  const valueOf = ({ value, valueFrom }) => value ?? (valueFrom.fieldRef ? '127.0.0.1' : secrets[valueFrom.secretKeyRef.key]);
  const environmentOf = ({ env }) => Object.fromEntries(env.map((each) => [each.name, valueOf(each)]));
  const folder = example(t);
  const start = async (name) => {
    const [port, nodes] = await freePorts(2);
    const values = environmentOf(container);
    assert.equal(values.STENTOR_CLUSTER_LISTEN, '$(POD_IP):8002');
    Object.assign(values, { STENTOR_CLUSTER_LISTEN: `${values.POD_IP}:${nodes}`, STENTOR_CLUSTER_NODE: name });
    // The addresses of both ports are flags here.
    const stentor = await serve(t, { config: one('ConfigMap').data['stentor.toml'], command: ['env', ...Object.entries(values).map(([name, value]) => `${name}=${value}`), binary] });
    const [command, ...args] = worker.command;
    assert.equal(environmentOf(worker).STENTOR, `ws://127.0.0.1:${container.ports.find(({ name }) => name === 'admin').containerPort}`);
    const sidecar = program(t, command, args, { cwd: folder, env: { ...process.env, ...environmentOf(worker), ...environment(stentor, port) } });
    const { path: ready } = worker.readinessProbe.httpGet;
    await until('the pod is ready', async () => (await fetch(`http://127.0.0.1:${port}${ready}`).catch(() => ({}))).status === 200);
    return { stentor, sidecar };
  };
  const pods = [await start('one'), await start('two')];
  // The worker names no application: it belongs to the only one of the ConfigMap.
  const { links } = await (await fetch(`${pods[0].stentor.admin}/api/v1/links`, { headers: { Authorization: `Bearer ${secrets.token}` } })).json();
  assert.deepEqual([...new Set(links.map(({ app }) => app))], ['chat']);
  const [ann, bob] = pods.map(({ stentor }, n) => user(t, stentor.http, ['Ann', 'Bob'][n]));
  for (const { socket } of [ann, bob]) if (!socket.connected) await once(socket, 'connect');
  const heard = async (by, wanted) => {
    for (;;) {
      const [event, value] = await by.next(`${wanted} for another pod's user`);
      if (event === 'message' && value.text === wanted) return;
    }
  };
  // A pod knows of the other one's workers a moment after they have connected.
  await introduced(() => ann.socket.emitWithAck('message', 'hello'), [heard(bob, 'hello')]);
  // The end of a pod: Stentor first, then its sidecar.
  pods[0].stentor.child.kill('SIGTERM');
  assert.equal((await pods[0].stentor.closed)[0], 0);
  await pods[0].sidecar.end();
  assert.equal(pods[0].sidecar.child.exitCode, 0);
  ann.socket.io.uri = pods[1].stentor.http;
  if (!ann.socket.connected) await once(ann.socket, 'connect');
  const again = heard(ann, 'again');
  await bob.socket.emitWithAck('message', 'again');
  await again;
});

/** The commands of a page's blocks that begin with a program's name, as their words. */
function commandsOf(page, program) {
  const blocks = [...readFileSync(path.resolve(here, '../..', page), 'utf8').matchAll(/^```sh\n(.*?)^```$/gms)].map(([, text]) => text.replaceAll('\\\n', ' '));
  return blocks.flatMap((text) => text.split('\n')).filter((line) => line.startsWith(`${program} `)).map((line) => line.split(/\s+/));
}

test("the pages' commands of kubectl make the secrets that the manifests need, and name their objects", { skip }, () => {
  const commands = ['docs/deploys.md', 'docs/deploy/README.md'].flatMap((page) => commandsOf(page, 'kubectl'));
  assert.equal(commands.length, 12);
  const secrets = new Map();
  const applied = [];
  for (const [, verb, ...words] of commands) {
    const deployments = applied.filter(({ kind }) => kind === 'Deployment');
    const deployment = () => deployments.findLast(({ metadata }) => words.includes(`deployment/${metadata.name}`));
    if (verb === 'create') {
      const [kind, type, name, ...literals] = words;
      assert.deepEqual([kind, type], ['secret', 'generic']);
      const keys = literals.map((literal) => /^--from-literal=([\w-]+)=/.exec(literal)?.[1]).filter(Boolean);
      secrets.set(name, [...(secrets.get(name) ?? []), ...keys]);
    } else if (verb === 'apply') {
      const folder = path.resolve(here, '../..', words[1]);
      applied.push(...objects(...readdirSync(folder).filter((name) => name.endsWith('.yaml')).map((name) => path.join(folder, name))));
      for (const { spec: { template: { spec } } } of applied.filter(({ kind }) => kind === 'Deployment')) {
        for (const { valueFrom } of [...spec.containers, ...spec.initContainers ?? []].flatMap(({ env }) => env).filter(({ valueFrom }) => valueFrom?.secretKeyRef)) {
          const { name, key } = valueFrom.secretKeyRef;
          assert.ok(secrets.get(name)?.includes(key), `no command makes ${key} of the secret ${name} before it is needed`);
        }
      }
    } else if (verb === 'set') {
      const [container] = /^\w+(?==)/.exec(words.at(-1));
      assert.ok(deployment().spec.template.spec.containers.some(({ name }) => name === container), container);
    } else {
      assert.equal(verb, 'rollout');
      assert.ok(deployment(), words.join(' '));
    }
  }
});

const chart = path.resolve(here, '../../docs/deploy/helm/stentor');
const helmProgram = path.join(here, 'helm/build/helm');
const helm = (...args) => spawnSync(helmProgram, args, { encoding: 'utf8', env: { ...process.env, HELM_CACHE_HOME: here, HELM_CONFIG_HOME: here, HELM_DATA_HOME: here } });
const noHelm = skip || (!existsSync(helmProgram) && 'run scripts/setup-tests');

/** The objects of the chart with some values, which have to fit the schemas of Kubernetes. */
function rendered(t, ...values) {
  const { status, stdout, stderr } = helm('template', 'stentor', chart, '--kube-version', '1.30', ...values);
  assert.equal(status, 0, stderr);
  const file = path.join(temporary(t), 'all.yaml');
  writeFileSync(file, stdout);
  const all = objects(file);
  const known = path.join(temporary(t), 'known.json');
  for (const object of all.filter(({ kind }) => kind !== 'ServiceMonitor')) {
    writeFileSync(known, JSON.stringify(object));
    for (const version of ['1.30', '1.37']) {
      const checked = validate(version, known);
      assert.equal(checked.status, 0, `${object.kind}: ${checked.stdout}${checked.stderr}`);
    }
  }
  return all;
}

/** Objects in an order of their own, without the labels of charts, defaults, and comments in the configuration. */
function comparable(all) {
  const own = /^(app\.kubernetes\.io\/(instance|version|managed-by)|helm\.sh\/chart|checksum\/config)$/;
  const plain = (value) => {
    if (Array.isArray(value)) return value.map(plain);
    if (typeof value !== 'object' || value === null) return value;
    const left = Object.entries(value).filter(([name, inner]) => !own.test(name) && !(name === 'imagePullPolicy') && !(name === 'type' && inner === 'ClusterIP'));
    return Object.fromEntries(left.map(([name, inner]) => [name, plain(inner)]).filter(([name, inner]) => name !== 'annotations' || Object.keys(inner).length));
  };
  const settings = (object) => (object.kind === 'ConfigMap' ? { ...object, data: object.data['stentor.toml'].split('\n').filter((line) => line && !line.startsWith('#')) } : object);
  return all.map(settings).map(plain).sort((one, other) => (JSON.stringify([one.kind, one.metadata.name]) < JSON.stringify([other.kind, other.metadata.name]) ? -1 : 1));
}

test('the chart is what the manifests are, with labels of its own', { skip: noHelm }, (t) => {
  const { status, stdout, stderr } = helm('lint', '--strict', chart);
  assert.equal(status, 0, stdout + stderr);
  const [, version] = /^\[workspace\.package\]\nversion = "(.+)"/m.exec(readFileSync(path.resolve(here, '../../Cargo.toml'), 'utf8'));
  assert.match(readFileSync(path.join(chart, 'Chart.yaml'), 'utf8'), new RegExp(`^version: ${version}\nappVersion: "${version}"$`, 'm'));
  assert.deepEqual(comparable(rendered(t, '--set', 'serviceMonitor.enabled=true')), comparable([...objects(...files), ...objects(operator)]));
});

test('the chart with a worker, as a cluster, is what the manifest of several pods is', { skip: noHelm }, (t) => {
  const expected = objects(cluster);
  const one = (kind, name) => expected.find((object) => object.kind === kind && object.metadata.name === name);
  const { template } = one('Deployment', 'stentor').spec;
  const [worker] = template.spec.initContainers;
  // The chart has names of its own for them.
  worker.name = 'worker';
  one('Service', 'chat').metadata.name = 'stentor-worker';
  const config = path.join(temporary(t), 'stentor.toml');
  writeFileSync(config, one('ConfigMap', 'stentor').data['stentor.toml']);
  const values = ['replicas=3', 'cluster.enabled=true', 'worker.enabled=true', `worker.image=${worker.image}`, 'worker.env[0].name=CLIENTS', 'worker.env[0].value=https://www.example.com'];
  const all = rendered(t, '--set-file', `config=${config}`, ...values.flatMap((value) => ['--set', value]));
  assert.deepEqual(comparable(all), comparable(expected));
});

test("the commands of the chart's page render it", { skip: noHelm }, (t) => {
  const folder = temporary(t);
  const config = path.join(folder, 'stentor.toml');
  writeFileSync(config, '');
  const commands = commandsOf('docs/deploy/helm/stentor/README.md', 'helm');
  assert.equal(commands.length, 2);
  for (const [, install, name, at, ...values] of commands) {
    assert.deepEqual([install, name, path.resolve(here, '../..', at)], ['install', 'stentor', chart]);
    const all = rendered(t, ...values.map((value) => value.replace('config=stentor.toml', `config=${config}`)));
    assert.deepEqual([...new Set(all.map(({ kind }) => kind))].sort(), ['ConfigMap', 'Deployment', 'PodDisruptionBudget', 'Service']);
  }
});

test('values of the chart: each has an effect, and a misspelled one fails', { skip: noHelm }, (t) => {
  const values = ['image.repository=example.org/push', 'image.tag=1.2.3', 'replicas=3', 'ingress.enabled=true', 'ingress.host=push.example.org', 'ingress.className=nginx', 'ingress.tlsSecret=cert',
    'adminToken.secret=other', 'env[0].name=KEY', 'env[0].value=x', 'podAnnotations.a=b', 'nodeSelector.disk=ssd', 'service.port=8080',
    'worker.enabled=true', 'worker.image=example.org/chat:2', 'worker.command={bun,index.ts}', 'worker.port=3001', 'worker.readyPath=/up', 'worker.token.secret=tokens', 'worker.token.key=chat',
    'worker.env[0].name=KEY', 'worker.env[0].value=y', 'worker.resources.limits.memory=1Gi', 'cluster.enabled=true', 'cluster.secret=nodes', 'cluster.engineKey=url', 'cluster.secretKey=key'];
  const all = rendered(t, ...values.flatMap((value) => ['--set', value]));
  const one = (kind) => all.find((object) => object.kind === kind);
  const { replicas, template } = one('Deployment').spec;
  const [container] = template.spec.containers;
  assert.deepEqual([replicas, container.image, template.metadata.annotations.a, template.spec.nodeSelector], [3, 'example.org/push:1.2.3', 'b', { disk: 'ssd' }]);
  assert.equal(container.env.find(({ name }) => name === 'STENTOR_SERVER_ADMIN_TOKEN').valueFrom.secretKeyRef.name, 'other');
  assert.equal(container.env.find(({ name }) => name === 'KEY').value, 'x');
  const [worker] = template.spec.initContainers;
  assert.deepEqual([worker.image, worker.command, worker.ports[0].containerPort, worker.readinessProbe.httpGet.path], ['example.org/chat:2', ['bun', 'index.ts'], 3001, '/up']);
  assert.equal(worker.resources.limits.memory, '1Gi');
  const valuesOf = ({ env }) => Object.fromEntries(env.map(({ name, value, valueFrom }) => [name, value ?? valueFrom.secretKeyRef ?? valueFrom.fieldRef]));
  const { PORT, KEY, STENTOR_TOKEN } = valuesOf(worker);
  assert.deepEqual([PORT, KEY, STENTOR_TOKEN], ['3001', 'y', { name: 'tokens', key: 'chat' }]);
  const { STENTOR_CLUSTER_ENGINE, STENTOR_CLUSTER_SECRET, ...own } = valuesOf(container);
  assert.deepEqual([own.STENTOR_TOKEN, STENTOR_CLUSTER_ENGINE, STENTOR_CLUSTER_SECRET], [STENTOR_TOKEN, { name: 'nodes', key: 'url' }, { name: 'nodes', key: 'key' }]);
  const { rules, tls, ingressClassName } = one('Ingress').spec;
  assert.deepEqual([rules[0].host, tls[0].secretName, ingressClassName], ['push.example.org', 'cert', 'nginx']);
  assert.equal(one('Service').spec.ports[0].port, 8080);
  for (const wrong of ['replica=3', 'image.repo=x', 'replicas=many', 'ingress.enabled=true', 'worker.enabled=true', 'worker.port=0', 'worker.name=x', 'cluster.engine=redis://redis:6379']) {
    const { status, stderr } = helm('template', 'stentor', chart, '--set', wrong);
    assert.notEqual(status, 0, wrong);
    assert.match(stderr, /values don't meet the specifications of the schema/, wrong);
  }
});
