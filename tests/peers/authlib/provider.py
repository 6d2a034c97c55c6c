"""An authorization server made with authlib, and an MCP server that takes its tokens, each at a port of its own.

Prints {"issuer", "mcp"} once both listen. A person is played by POST /control/browse.
"""
import json
import logging
import os
import sys
import threading
import urllib.error
import urllib.request

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, TokenMixin, grants, list_to_scope, scope_to_list
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc9207 import IssuerParameter
from flask import Flask, jsonify, redirect, request
from werkzeug.serving import make_server

logging.getLogger("werkzeug").setLevel(logging.ERROR)
clients, codes, tokens, log, seen, dead = {}, {}, [], [], set(), set()
person = "ada"


class KnownClient(ClientMixin):
    def __init__(self, client_id, metadata):
        self.client_id, self.metadata = client_id, metadata

    def get_client_id(self):
        return self.client_id

    def get_default_redirect_uri(self):
        return self.metadata["redirect_uris"][0]

    def get_allowed_scope(self, scope):
        return list_to_scope([one for one in scope_to_list(scope or "") if one in ("mcp:read", "mcp:write")])

    def check_redirect_uri(self, uri):
        return uri in self.metadata["redirect_uris"]

    def check_client_secret(self, _):
        return False

    def check_endpoint_auth_method(self, method, _):
        return method == "none"

    def check_response_type(self, kind):
        return kind == "code"

    def check_grant_type(self, kind):
        return kind in ("authorization_code", "refresh_token")


class GivenCode:
    def __init__(self, **of):
        self.__dict__.update(of)

    def get_redirect_uri(self):
        return self.redirect_uri

    def get_scope(self):
        return self.scope


class GivenToken(TokenMixin):
    def __init__(self, client_id, user, resource, given):
        self.client_id, self.user, self.resource = client_id, user, resource
        self.__dict__.update(given)
        self.revoked = False

    def check_client(self, client):
        return self.client_id == client.get_client_id()

    def get_scope(self):
        return self.scope

    def get_expires_in(self):
        return self.expires_in

    def is_expired(self):
        return False

    def is_revoked(self):
        return self.revoked

    def get_user(self):
        return self.user

    def get_client(self):
        return clients[self.client_id]


class CodeGrant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["none"]

    def save_authorization_code(self, code, asked):
        said = asked.payload.data
        codes[code] = GivenCode(
            code=code, client_id=asked.client.client_id, redirect_uri=asked.payload.redirect_uri, scope=asked.payload.scope,
            user=asked.user, resource=said.get("resource"), code_challenge=said.get("code_challenge"),
            code_challenge_method=said.get("code_challenge_method"))

    def query_authorization_code(self, code, client):
        found = codes.get(code)
        return found if found and found.client_id == client.client_id else None

    def delete_authorization_code(self, code):
        codes.pop(code.code, None)

    def authenticate_user(self, code):
        return (code.user, code.resource)


class RenewGrant(grants.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["none"]
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, text):
        return next((one for one in tokens if one.refresh_token == text and not one.revoked), None)

    def authenticate_user(self, token):
        return (token.user, token.resource)

    def revoke_old_credential(self, token):
        token.revoked = True


class Registered(ClientRegistrationEndpoint):
    def authenticate_token(self, _):
        return "anybody"

    def get_server_metadata(self):
        return metadata()

    def save_client(self, info, said, _):
        log.append({"at": "registered"})
        client = KnownClient(info["client_id"], dict(said))
        client.client_info = {"client_id": info["client_id"]}
        client.client_metadata = {**said, "token_endpoint_auth_method": "none"}
        clients[client.client_id] = client
        return client


class Revoked(RevocationEndpoint):
    CLIENT_AUTH_METHODS = ["none"]

    def query_token(self, text, _):
        return next((one for one in tokens if text in (one.access_token, one.refresh_token)), None)

    def revoke_token(self, token, _):
        log.append({"at": "revoked"})
        token.revoked = True


issuing = Flask("issuing")
guarded = Flask("guarded")
listening = [make_server("127.0.0.1", 0, app, threaded=True) for app in (issuing, guarded)]
issuer, origin = (f"http://127.0.0.1:{one.port}" for one in listening)
resource = f"{origin}/mcp"


def metadata():
    return {
        "issuer": issuer, "authorization_endpoint": f"{issuer}/authorize", "token_endpoint": f"{issuer}/token",
        "registration_endpoint": f"{issuer}/register", "revocation_endpoint": f"{issuer}/revoke",
        "scopes_supported": ["mcp:read", "mcp:write"], "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": ["none"], "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
    }


def save_token(given, asked):
    user, of = asked.user
    log.append({"at": "token", "grant": asked.payload.grant_type})
    tokens.append(GivenToken(asked.client.client_id, user, of, given))


issuing.config["OAUTH2_REFRESH_TOKEN_GENERATOR"] = True
server = AuthorizationServer(issuing, query_client=clients.get, save_token=save_token)


class NamedIssuer(IssuerParameter):
    def get_issuer(self):
        return issuer


server.register_grant(CodeGrant, [CodeChallenge(required=True)])
server.register_grant(RenewGrant)
server.register_endpoint(Registered)
server.register_endpoint(Revoked)
server.register_extension(NamedIssuer())


@issuing.get("/.well-known/oauth-authorization-server")
def told():
    return jsonify(metadata())


@issuing.get("/authorize")
def authorize():
    grant = server.get_consent_grant(end_user=person)
    return server.create_authorization_response(grant=grant, grant_user=person)


@issuing.post("/token")
def token():
    answer = server.create_token_response()
    if answer.status_code != 200:
        log.append({"at": "refused", "error": answer.get_json().get("error")})
    return answer


@issuing.post("/register")
def register():
    return server.create_endpoint_response("client_registration")


@issuing.post("/revoke")
def revoke():
    return server.create_endpoint_response("revocation")


class Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def browse(url):
    try:
        answer = urllib.request.build_opener(Stays).open(url)
        raise ValueError(f"HTTP {answer.status}: {answer.read()}")
    except urllib.error.HTTPError as answer:
        if "location" not in answer.headers:
            raise ValueError(f"HTTP {answer.code}: {answer.read()}") from answer
        return answer.headers["location"]


@guarded.route("/control/<what>", methods=["GET", "POST"])
def control(what):
    global person
    said = request.get_data(as_text=True)
    if what == "log":
        return jsonify(log)
    if what == "seen":
        return jsonify(sorted(seen))
    if what == "expire":
        dead.update(seen)
    if what == "person":
        person = said
    if what == "browse":
        return jsonify({"to": browse(said)})
    return jsonify({})


@guarded.get("/.well-known/oauth-protected-resource/mcp")
def protected():
    return jsonify({"resource": resource, "authorization_servers": [issuer], "scopes_supported": ["mcp:read"]})


@guarded.post("/mcp")
def mcp():
    where = f'resource_metadata="{origin}/.well-known/oauth-protected-resource/mcp"'
    text = request.headers.get("authorization", "").removeprefix("Bearer ")
    if text:
        seen.add(text)
    found = next((one for one in tokens if one.access_token == text and not one.revoked and text not in dead), None)
    if not found or found.resource != resource:
        why = 'error="invalid_token", ' if text else ""
        return jsonify({}), 401, {"www-authenticate": f"Bearer {why}{where}"}
    said = request.get_json()
    if "id" not in said:
        return "", 202
    tools = [{"name": name, "description": f"A tool that {name}s.", "inputSchema": {"type": "object"}} for name in ("read",)]
    results = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "guarded", "version": "1"}},
        "tools/list": {"tools": tools},
        "tools/call": {"content": [{"type": "text", "text": f"read for {found.user}"}]},
        "ping": {},
    }
    result = results.get(said["method"])
    answer = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
    return jsonify({"jsonrpc": "2.0", "id": said["id"], **answer})


for one in listening:
    threading.Thread(target=one.serve_forever, daemon=True).start()
print(json.dumps({"issuer": issuer, "mcp": resource, "liar": f"{origin}/nobody"}), flush=True)
# It ends with whoever started it.
sys.stdin.read()
