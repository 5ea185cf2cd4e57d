// npm `primus` 1.5 with its transformer `websockets` as a peer, by the documented interface: a message back to who sent
// it, or to everybody.
'use strict';
var elder = require('../elder.js');
var Primus = require('primus');

var options = elder.options(process.argv);
var http = require('http').createServer();
var primus = new Primus(http, { transformer: 'websockets' });

primus.on('connection', function (spark) {
  spark.on('data', function (data) {
    if (options.mode === 'echo') spark.write(data);
    else primus.write(data);
  });
});

elder.listen('primus15', http, options.port);
