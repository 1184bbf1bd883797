// The search of the theme runs in a Web Worker. A browser starts none for a page from file://, so it runs in a hidden frame there.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const page = frame.contentDocument;
      page.open();
      page.write("<!doctype html><body></body>");
      page.close();
      this.frame = frame.contentWindow;
      this.frame.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = page.createElement("script");
      this.loaded = new Promise((resolve, reject) => {
        script.onload = resolve;
        script.onerror = reject;
      });
      script.src = url;
      page.body.appendChild(script);
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
