// What the peers on old releases of Node share: their options, listening and ending, and the documents of `fanout`.
// In the language of 2012: Node 0.8 runs it, too.
'use strict';

// Options as the README of this folder has them, from the command line.
exports.options = function (args) {
  var values = { mode: 'echo', port: 0, protocol: '', bytes: 1000, hz: 20 };
  for (var i = 2; i + 1 < args.length; i += 2) {
    var name = args[i].replace(/^--/, '');
    values[name] = typeof values[name] === 'number' ? Number(args[i + 1]) : args[i + 1];
  }
  return values;
};

// Listens, says so, and ends on SIGTERM.
exports.listen = function (name, server, port, listening) {
  server.on('error', function (error) {
    console.error(name + ': ' + error.message);
    process.exit(1);
  });
  server.listen(port, '127.0.0.1', 4096, function () {
    console.log('ready http://127.0.0.1:' + server.address().port);
    if (listening) listening();
  });
  process.on('SIGTERM', function () {
    process.exit(0);
  });
};

// Hands a document of `bytes` to `toAll`, `hz` times a second.
exports.fanout = function (options, toAll) {
  var bytes = Math.max(36, options.bytes);
  var hz = Math.max(1, options.hz);
  var padding = new Array(bytes - 36 + 1).join('x');
  var started = process.hrtime();
  var sent = 0;
  (function tick() {
    var passed = process.hrtime(started);
    var passedNs = passed[0] * 1e9 + passed[1];
    for (;;) {
      var dueNs = (sent * 1e9) / hz;
      if (dueNs > passedNs) {
        setTimeout(tick, (dueNs - passedNs) / 1e6);
        return;
      }
      toAll(digits(sent, 16) + clock(started, Math.floor(dueNs)) + padding);
      sent++;
    }
  })();
};

function digits(number, count) {
  return (new Array(count + 1).join('0') + number).slice(-count);
}

// A time of `process.hrtime` and so many nanoseconds, as 20 digits. More than a number holds exactly.
function clock(time, laterNs) {
  var ns = time[1] + (laterNs % 1e9);
  return digits(time[0] + Math.floor(laterNs / 1e9) + Math.floor(ns / 1e9), 11) + digits(ns % 1e9, 9);
}
