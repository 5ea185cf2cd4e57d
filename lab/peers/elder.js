// Code shared by the servers on old releases of Node: options, listening and ending.
// In the language of 2012: Node 0.8 runs it, too.
'use strict';

// Options as the README of this folder has them, from the command line.
exports.options = function (args) {
  var values = { mode: 'echo', port: 0, protocol: '' };
  for (var i = 2; i + 1 < args.length; i += 2) {
    var name = args[i].replace(/^--/, '');
    values[name] = typeof values[name] === 'number' ? Number(args[i + 1]) : args[i + 1];
  }
  return values;
};

// Listens, says so, and ends on SIGTERM.
exports.listen = function (name, server, port) {
  server.on('error', function (error) {
    console.error(name + ': ' + error.message);
    process.exit(1);
  });
  server.listen(port, '127.0.0.1', 4096, function () {
    console.log('ready http://127.0.0.1:' + server.address().port);
  });
  process.on('SIGTERM', function () {
    process.exit(0);
  });
};
