use mgp_engine::servers::spec::ServerTransport;
use std::fs::File;

use super::*;

/// MCP-082: no access from other machines without TLS.
#[test]
fn a_listen_address_beyond_loopback_is_rejected_with_the_reason() {
    for address in ["0.0.0.0:7332", "[::]:7332", "192.168.1.2:80"] {
        let read = read_text(&format!("[http]\nlisten = \"{address}\"\n"));
        assert_eq!(read.problems[0].severity, Severity::Fatal);
        assert!(
            read.messages()[0].contains("without TLS"),
            "{:?}",
            read.messages()
        );
    }
    for address in ["127.0.0.1:0", "127.1.2.3:1", "[::1]:7332", "localhost:7332"] {
        let read = read_text(&format!("[http]\nlisten = \"{address}\"\n"));
        assert!(read.problems.is_empty(), "{:?}", read.messages());
        assert!(read.kernel.http.listen.ip().is_loopback());
    }
}

/// MCP-082: with TLS other machines may connect, if they authenticate.
#[test]
fn a_listen_address_beyond_loopback_requires_tls_and_authentication() {
    let (listen, tls) = (
        "listen = \"192.168.1.2:7332\"",
        "[http.tls]\ncert = \"c.pem\"\nkey = \"/k.pem\"",
    );
    let ca = "client_ca = \"ca.pem\"";
    let good = [
        format!("[http]\n{listen}\n{tls}"),
        format!("[http]\n{listen}\nauth = \"none\"\n{tls}\n{ca}"),
    ];
    for text in good {
        let read = read_text(&text);
        assert!(read.problems.is_empty(), "{:?}", read.messages());
        let papers = read.kernel.http.tls.unwrap();
        assert_eq!(papers.cert, Path::new("/etc/mgp/c.pem"));
        assert_eq!(papers.key, Path::new("/k.pem"));
        assert!(papers.client_auth.is_none_or(|clients| clients.required));
    }
    let optional = "client_auth = \"optional\"";
    for (text, words) in [
        (
            format!("{listen}\nauth = \"none\"\n{tls}"),
            "every one of them",
        ),
        (
            format!("{listen}\nauth = \"none\"\n{tls}\n{ca}\n{optional}"),
            "every one of them",
        ),
        ("[http.tls]\ncert = \"c.pem\"".to_owned(), "wants both"),
        (format!("[http.tls]\n{ca}"), "wants both"),
        (format!("{tls}\n{optional}"), "says nothing without"),
    ] {
        let read = read_text(&format!("[http]\n{text}\n"));
        assert!(
            read.messages().iter().any(|said| said.contains(words)),
            "{text}: {:?}",
            read.messages()
        );
    }
}

/// CMCP-028: the longest replay ring has 65,536 events; larger values are reported.
#[test]
fn a_replay_ring_that_is_too_long_is_rejected() {
    let most = read_text("[tuning.streams]\nreplay_events = 65_536\n");
    assert_eq!(most.kernel.streams.replay_events, 65_536);
    assert!(most.problems.is_empty());
    let more = read_text("[tuning.streams]\nreplay_events = 65_537\n");
    assert_eq!(more.problems[0].severity, Severity::Fatal);
    let said = &more.messages()[0];
    assert!(said.contains("goes from 0 to 65536"), "{said}");
}

/// for each server id and each key of the kernel, the project's file wins once it is trusted, and does not count
/// before.
#[test]
fn the_project_wins_over_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let look_up = ConfigLookup {
        home: Some(folder.path().join("home")),
        current_dir: folder.path().join("project"),
        ..ConfigLookup::default()
    };
    let write = |path: std::path::PathBuf, text: &str| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let server =
        |id: &str, command: &str| format!("[[servers]]\nid = \"{id}\"\ncommand = \"{command}\"\n");
    let project = format!("[lists]\npage_size = 5\n{}", server("both", "project"));
    let user = format!(
        "[lists]\npage_size = 6\n[tuning]\nstreams.replay_events = 7\ndiscovery.budget.max_tokens = 9000\n{}{}",
        server("both", "user"),
        server("mine", "user")
    );
    write(look_up.project_file(), &project);
    write(look_up.user_file().unwrap(), &user);
    let unasked = load(&look_up, &env, None).unwrap();
    assert_eq!(unasked.kernel.lists.page_size, 6);
    assert!(unasked.project.untrusted.is_some());
    let looked_at = trust::TrustedFile {
        file: trust::trusted_path(&look_up.project_file()).unwrap(),
        blake3: trust::hash(&project),
        at: String::new(),
    };
    let store = look_up.trust_file();
    trust::modify_store(store.as_deref(), |entries| entries.push(looked_at)).unwrap();
    let loaded = load(&look_up, &env, None).unwrap();
    assert!(loaded.is_usable(), "{:?}", loaded.problems);
    let commands = loaded
        .servers
        .iter()
        .map(|s| match &s.as_ref().unwrap().transport {
            ServerTransport::Stdio { command, .. } => command.clone(),
            ServerTransport::Http { .. } | ServerTransport::Node(_) => {
                panic!("a command is started")
            }
        });
    assert_eq!(commands.collect::<Vec<_>>(), ["project", "user"]);
    assert_eq!(loaded.kernel.lists.page_size, 5);
    assert_eq!(loaded.kernel.streams.replay_events, 7);
    assert_eq!(loaded.kernel.discovery.budget.max_tokens, 9000);
    assert_eq!(loaded.files.len(), 2);
}

#[test]
fn a_file_that_is_too_long_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mgp.toml");
    File::create(&path)
        .unwrap()
        .set_len(FILE_BYTES_MAX + 1)
        .unwrap();
    let look_up = ConfigLookup {
        explicit: Some(path),
        ..ConfigLookup::default()
    };
    let loaded = load(&look_up, &env, None).unwrap();
    assert!(!loaded.is_usable());
    assert!(loaded.problems[0].to_string().contains("too many"));
}

/// Settings that would let others sign, or change the issuer's keys in transit, are rejected at the start.
#[test]
fn oauth_requires_an_issuer_that_alone_can_sign() {
    let said = |more: &str| read_text(&format!("[http]\nauth = \"oauth\"\n{more}")).messages();
    let good = "[oauth]\nissuer = \"https://a.example/realm\"\n";
    assert_eq!(said(good), [""; 0]);
    assert!(said("")[0].contains("names no `issuer`"));
    for (wrong, words) in [
        (
            "[oauth]\nissuer = \"http://a.example\"\n",
            "`issuer` in [oauth] wants https",
        ),
        (
            &*format!("{good}jwks_url = \"http://a.example/k\"\n"),
            "`jwks_url` in [oauth] wants https",
        ),
        (
            &*format!("{good}algorithms = [\"HS256\"]\n"),
            "only the issuer can sign",
        ),
        (
            &*format!("{good}algorithms = [\"none\"]\n"),
            "only the issuer can sign",
        ),
        (
            &*format!("{good}audiences = []\n"),
            "did you mean `audience`?",
        ),
    ] {
        let told = said(wrong);
        assert!(
            told.iter().any(|told| told.contains(words)),
            "{wrong}: {told:?}"
        );
    }
}

/// EXT-220: a broker that could not work, or keys that would say nothing, are rejected at the start.
#[test]
fn broker_requires_a_client_and_an_address_for_browsers() {
    let text = |http: &str, oauth: &str, broker: &str| {
        format!(
            "[http]\n{http}\n[oauth]\nissuer = \"https://a.example\"\n{oauth}\n[oauth.broker]\n{broker}\n"
        )
    };
    let (auth, id) = ("auth = \"oauth\"", "client_id = \"c\"");
    let read = read_text(&text(auth, "", id));
    assert_eq!(read.messages(), [""; 0]);
    let broker = read.kernel.oauth.broker.clone().unwrap();
    assert_eq!(broker.scopes, ["openid", "profile", "email"]);
    assert!(read_text("[oauth]\n").kernel.oauth.broker.is_none());
    let tls = "listen = \"0.0.0.0:1\"\n[http.tls]\ncert = \"/c\"\nkey = \"/k\"";
    let open = format!("{auth}\n{tls}");
    for (wrong, words) in [
        (text(auth, "", ""), "names no `client_id`"),
        (text(&open, "", id), "wants `resource` in [oauth]"),
        (
            text(auth, "audience = [\"a\"]", id),
            "says nothing with [oauth.broker]",
        ),
        (
            text(auth, "scopes = [\"a\"]", id),
            "says nothing with [oauth.broker]",
        ),
        (
            text(auth, "", &format!("{id}\nscopes = [\"email\"]")),
            "wants \"openid\"",
        ),
        (
            text(auth, "", &format!("{id}\nclients = {{ a = \"short\" }}")),
            "16 characters",
        ),
        (
            text(auth, "", &format!("{id}\nsession_secs = 1")),
            "`session_secs`",
        ),
    ] {
        let told = read_text(&wrong).messages();
        assert!(
            told.iter().any(|told| told.contains(words)),
            "{wrong}: {told:?}"
        );
    }
    let resource = "resource = \"https://gateway.example/mcp\"";
    assert_eq!(read_text(&text(&open, resource, id)).messages(), [""; 0]);
    let secret = text(
        auth,
        "",
        &format!(
            "{id}\nclient_secret = \"hidden-secret-value\"\nclients = {{ a = \"another-hidden-secret\" }}"
        ),
    );
    let shown = format!("{:?}", read_text(&secret).kernel.oauth);
    assert!(!shown.contains("hidden"), "{shown}");
}

/// the source of embeddings; nothing is sent in clear text over a network, and no message contains the key.
#[test]
fn a_provider_has_precedence_over_the_built_in_model() {
    use mgp_tools::search::Embedding;

    let of = |text: &str| read_text(&format!("[discovery]\n{text}"));
    assert_eq!(of("").kernel.discovery.embedding(), Embedding::Builtin);
    let off = of("embedding = \"off\"\n");
    assert_eq!(off.kernel.discovery.embedding(), Embedding::Off);
    let section = |url: &str, more: &str| format!("[discovery.provider]\nurl = \"{url}\"\n{more}");
    let more =
        "model = \"m\"\nkey = \"${CEREBRAS_API_KEY}\"\n[tuning.discovery.provider]\nbatch = 7\n";
    let read = of(&format!(
        "embedding = \"off\"\n{}",
        section("https://a.example/v1", more)
    ));
    assert_eq!(read.messages(), [""; 0]);
    let Embedding::Provider(provider) = read.kernel.discovery.embedding() else {
        panic!("it is named");
    };
    assert_eq!((provider.key.0.as_str(), provider.batch), ("sk-secret", 7));
    assert_eq!(read.masked, ["sk-secret"]);
    assert!(!format!("{:?}", read.kernel).contains("sk-secret"));
    for (text, told) in [
        (section("http://a.example/v1", more), "wants https://"),
        (section("https://a.example/v1", ""), "wants both"),
        (
            "[discovery.provider]\nmodel = \"m\"\n".to_owned(),
            "wants both",
        ),
        (
            section(
                "https://a.example/v1",
                "model = \"m\"\nkey = \"${NO_SUCH}\"\n",
            ),
            "NO_SUCH",
        ),
        (
            section(
                "https://a.example/v1",
                "model = \"m\"\n[tuning.discovery.provider]\nbatch = 0\n",
            ),
            "from 1 to 256",
        ),
        ("embedding = \"magic\"\n".to_owned(), "`builtin`, `off`"),
    ] {
        let read = of(&text);
        let said = read.messages().join("\n");
        assert!(said.contains(told), "{text}: {said}");
        assert_eq!(read.problems[0].severity, Severity::Fatal);
    }
}

/// The node's name and addresses are checked when the file is read.
#[test]
fn keys_of_the_cluster_section_are_checked() {
    let of = |text: &str| read_text(&format!("[cluster]\n{text}\n"));
    let good = of(
        "name = \"nas\"\nlisten = \"10.0.0.2:7332\"\npeers = [\"desk.lan:7332\"]\nlease_secs = 10",
    );
    assert_eq!(good.messages(), [""; 0]);
    assert_eq!(good.kernel.cluster.node_name().as_str(), "nas");
    assert_eq!(good.kernel.cluster.peers, ["desk.lan:7332"]);
    let many = format!("peers = {:?}", vec!["a:1"; 65]);
    let advertised = format!("advertise = {:?}", vec!["a:1"; 9]);
    for (text, words) in [
        ("name = \"NAS\"", "small letters"),
        ("listen = \"7332\"", "an address and a port"),
        ("peers = [\"desk\"]", "has no port"),
        ("advertise = [\"fe80::1:7332\"]", "brackets"),
        ("lease_secs = 9", "goes from 10 to 300"),
        ("lease_secs = 301", "goes from 10 to 300"),
        (&*many, "more than 64"),
        (&*advertised, "more than 8"),
        ("peer = []", "did you mean `peers`?"),
    ] {
        let read = of(text);
        let said = read.messages().join("\n");
        assert!(said.contains(words), "{text}: {said}");
        assert_eq!(read.problems[0].severity, Severity::Fatal);
    }
}
