// The sandbox between a host and its app: another origin, which loads the page under the policy of this document.
const inner = document.createElement('iframe');
inner.setAttribute('sandbox', 'allow-scripts allow-same-origin allow-forms');
inner.style = 'width: 100%; height: 100vh; border: none';
document.body.append(inner);
addEventListener('message', ({ source, data }) => {
  if (source === parent && data?.method === 'ui/notifications/sandbox-resource-ready') {
    inner.contentDocument.open();
    inner.contentDocument.write(data.params.html);
    inner.contentDocument.close();
  } else if (source === parent) inner.contentWindow.postMessage(data, '*');
  else if (source === inner.contentWindow) parent.postMessage(data, '*');
});
parent.postMessage({ jsonrpc: '2.0', method: 'ui/notifications/sandbox-proxy-ready', params: {} }, '*');
