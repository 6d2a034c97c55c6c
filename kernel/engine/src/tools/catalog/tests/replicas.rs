//! Tools that may be called at several places.

use mgp_protocol::federation::tool_index::IndexRoot;

use super::*;
use crate::servers::replica_spec::ReplicaSpec;

fn mark(specification: u8) -> ReplicaSpec {
    ReplicaSpec {
        spec_hash: IndexRoot([specification; 32]),
        stateful: false,
    }
}

fn marked(server: &str, names: &[&str], specification: u8) -> Arc<ServerOffer> {
    let offer = tools(server, names);
    Arc::new(
        (*offer)
            .clone()
            .with_replica_spec(Some(mark(specification))),
    )
}

fn listed(catalog: &Catalog) -> Vec<String> {
    let page: Bytes = first_page(catalog, &CatalogView::All, ListKind::Tools).into();
    read(&page, ListKind::Tools).0
}

fn places(catalog: &Catalog, name: &str) -> Vec<String> {
    let tool = catalog.tool(&CatalogView::All, name);
    let places = tool.map_or(&[][..], |tool| catalog.replicas(tool));
    places.iter().map(|tool| tool.server.to_string()).collect()
}

/// FEDERATION, "Calls across nodes": the same specification, name and schemas, and both marks, are one entry.
#[test]
fn only_equal_replicas_are_one_entry() {
    let other_schema = ServerOffer::new(id("den/files")).with_list(
        ListKind::Tools,
        &[json!({"name": "read", "inputSchema": {"type": "object", "title": "t"}}).to_string()],
    );
    let catalog = empty().with_offers(&[
        marked("nas/files", &["read", "only_there"], 1),
        marked("attic/files", &["read"], 1),
        marked("shed/files", &["read"], 2),
        Arc::new(other_schema.with_replica_spec(Some(mark(1)))),
        tools("barn/files", &["read"]),
    ]);
    let names = [
        "attic__files__read",
        "barn__files__read",
        "den__files__read",
        "nas__files__only_there",
        "shed__files__read",
    ];
    assert_eq!(listed(&catalog), names);
    let both = ["attic/files", "nas/files"];
    for name in ["attic__files__read", "nas__files__read", "nas/files:read"] {
        assert_eq!(places(&catalog, name), both, "{name}");
    }
    assert_eq!(places(&catalog, "shed__files__read"), ["shed/files"]);
    assert_eq!(places(&catalog, "barn__files__read"), [""; 0]);
}

/// The entry keeps the name it has for as long as its first member is there, and this node's own comes first.
#[test]
fn an_entry_keeps_its_name_and_those_of_removed_replicas() {
    let (nas, attic) = (
        marked("nas/files", &["read"], 1),
        marked("attic/files", &["read"], 1),
    );
    let first = empty().with_offers(std::slice::from_ref(&nas));
    let both = first.with_offers(&[nas.clone(), attic.clone()]);
    assert_eq!(listed(&both), ["nas__files__read"]);
    let alone = both.with_offers(std::slice::from_ref(&attic));
    assert_eq!(listed(&alone), ["attic__files__read"]);
    for name in ["nas__files__read", "nas/files:read"] {
        assert_eq!(places(&alone, name), ["attic/files"], "{name}");
    }
    let back = alone.with_offers(&[nas.clone(), attic.clone()]);
    assert_eq!(listed(&back), ["attic__files__read"]);
    let here = back.with_offers(&[nas, attic, marked("mine", &["read"], 1)]);
    assert_eq!(listed(&here), ["mine__read"]);
    let all = ["mine", "attic/files", "nas/files"];
    assert_eq!(places(&here, "nas__files__read"), all);
    // What another server has under the name is that server's.
    let taken = alone.with_offers(&[
        marked("attic/files", &["read"], 1),
        tools("nas/files", &["read"]),
    ]);
    assert_eq!(places(&taken, "nas__files__read"), [""; 0]);
    assert_eq!(listed(&empty().with_offers(&[])), [""; 0]);
}

/// Whoever may call one of them is shown the entry; a mark that is taken back makes two of it.
#[test]
fn the_entry_is_visible_to_callers_of_any_replica() {
    let (nas, attic) = (
        marked("nas/files", &["read"], 1),
        marked("attic/files", &["read"], 1),
    );
    let catalog = empty().with_offers(&[attic.clone(), nas.clone()]);
    let sees = |open: &[&str]| {
        let keep = |server: &ServerId, _: Option<&str>| open.contains(&server.as_str());
        let (view, kind) = (CatalogView::All, ListKind::Tools);
        let sifted = catalog.filter(&view, kind, ProtocolFamily::Stateless, "those", keep);
        let page = sifted
            .unwrap()
            .page(None, ProtocolFamily::Stateless)
            .unwrap();
        read(&page, kind).0
    };
    assert_eq!(sees(&["nas/files"]), ["attic__files__read"]);
    assert_eq!(sees(&["attic/files"]), ["attic__files__read"]);
    assert_eq!(sees(&["other"]), [""; 0]);
    let unmarked = Arc::new((*nas).clone().with_replica_spec(None));
    let catalog = catalog.with_offers(&[attic, unmarked]);
    assert_eq!(listed(&catalog).len(), 2);
}

/// An offer of a marked server with a prompt that takes this, a resource of this type and a template.
fn readable(server: &str, argument: &str, mime: &str) -> Arc<ServerOffer> {
    let prompt = json!({"name": "ask", "description": server, "arguments": [{"name": argument, "description": server}]});
    let resource = json!({"uri": "a://b", "name": server, "mimeType": mime});
    let template = json!({"uriTemplate": "c://{d}", "name": server, "mimeType": mime});
    let offer = ServerOffer::new(id(server))
        .with_list(ListKind::Prompts, &[prompt.to_string()])
        .with_list(ListKind::Resources, &[resource.to_string()])
        .with_list(ListKind::Templates, &[template.to_string()]);
    Arc::new(offer.with_replica_spec(Some(mark(1))))
}

fn keys(catalog: &Catalog, kind: ListKind) -> Vec<String> {
    let page = catalog
        .page(&CatalogView::All, kind, None, ProtocolFamily::Stateless)
        .unwrap();
    read(&page, kind).0
}

fn reading(catalog: &Catalog, kind: ListKind, server: &str, own: &str) -> Vec<String> {
    let places = catalog.replica_servers(kind, &id(server), own);
    places.iter().map(ServerId::to_string).collect()
}

/// Prompts that take the same, and resources and templates of the same type, are one entry; what differs in that is not.
#[test]
fn prompts_and_resources_of_replicas_are_one_entry_each() {
    let catalog = empty().with_offers(&[
        readable("attic/it", "what", "text/plain"),
        readable("nas/it", "what", "text/plain"),
        readable("shed/it", "other", "text/html"),
    ]);
    assert_eq!(
        keys(&catalog, ListKind::Prompts),
        ["attic__it__ask", "shed__it__ask"]
    );
    let uris = ["mcpk://attic/it/a%3A%2F%2Fb", "mcpk://shed/it/a%3A%2F%2Fb"];
    assert_eq!(keys(&catalog, ListKind::Resources), uris);
    assert_eq!(keys(&catalog, ListKind::Templates).len(), 2);
    let both = ["attic/it", "nas/it"];
    for (kind, own) in [
        (ListKind::Prompts, "ask"),
        (ListKind::Resources, "a://b"),
        (ListKind::Templates, "c://{d}"),
    ] {
        assert_eq!(reading(&catalog, kind, "nas/it", own), both, "{kind:?}");
        assert_eq!(
            reading(&catalog, kind, "shed/it", own),
            ["shed/it"],
            "{kind:?}"
        );
    }
    let by_template = reading(&catalog, ListKind::Resources, "nas/it", "c://whatever");
    assert_eq!(by_template, both);
    let sees = |open: &str, kind| {
        let keep = |server: &ServerId, _: Option<&str>| server.as_str() == open;
        let sifted = catalog.filter(
            &CatalogView::All,
            kind,
            ProtocolFamily::Stateless,
            "those",
            keep,
        );
        read(
            &sifted
                .unwrap()
                .page(None, ProtocolFamily::Stateless)
                .unwrap(),
            kind,
        )
        .0
        .len()
    };
    for kind in [ListKind::Prompts, ListKind::Resources, ListKind::Templates] {
        assert_eq!(
            (sees("nas/it", kind), sees("other", kind)),
            (1, 0),
            "{kind:?}"
        );
    }
}

/// This node's own comes first, and the names of who is gone lead to who is left.
#[test]
fn read_items_keep_their_name_and_those_of_removed_replicas() {
    let (nas, attic) = (
        readable("nas/it", "what", "text/plain"),
        readable("attic/it", "what", "text/plain"),
    );
    let first = empty().with_offers(std::slice::from_ref(&nas));
    let both = first.with_offers(&[nas.clone(), attic.clone()]);
    assert_eq!(keys(&both, ListKind::Prompts), ["nas__it__ask"]);
    let alone = both.with_offers(std::slice::from_ref(&attic));
    for name in ["nas__it__ask", "nas/it:ask", "attic__it__ask"] {
        let prompt = alone.prompt(&CatalogView::All, name).unwrap();
        assert_eq!(prompt.server, id("attic/it"), "{name}");
    }
    for uri in ["mcpk://nas/it/a%3A%2F%2Fb", "mcpk://nas/it/c%3A%2F%2Fd"] {
        let route = alone.resource(&CatalogView::All, uri).unwrap();
        assert_eq!(*route.server, id("attic/it"), "{uri}");
    }
    let here = alone.with_offers(&[nas, attic, readable("it", "what", "text/plain")]);
    assert_eq!(keys(&here, ListKind::Prompts), ["it__ask"]);
    assert_eq!(keys(&here, ListKind::Resources), ["a://b"]);
    let unmarked = Arc::new(
        (*readable("den/it", "what", "text/plain"))
            .clone()
            .with_replica_spec(None),
    );
    let more = here.with_offers(&[unmarked, readable("it", "what", "text/plain")]);
    assert_eq!(keys(&more, ListKind::Prompts).len(), 2);
}
