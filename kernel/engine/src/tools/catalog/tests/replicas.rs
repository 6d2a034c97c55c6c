//! Tools that may be called at several places.

use mgp_protocol::federation::tool_index::IndexRoot;

use super::*;
use crate::servers::replica_mark::ReplicaMark;

fn mark(specification: u8) -> ReplicaMark {
    ReplicaMark {
        specification: IndexRoot([specification; 32]),
        stateful: false,
    }
}

fn marked(server: &str, names: &[&str], specification: u8) -> Arc<ServerOffer> {
    let offer = tools(server, names);
    Arc::new((*offer).clone().marked(Some(mark(specification))))
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
fn replicas_are_one_entry_and_what_differs_is_not() {
    let other_schema = ServerOffer::new(id("den/files")).with(
        ListKind::Tools,
        &[json!({"name": "read", "inputSchema": {"type": "object", "title": "t"}}).to_string()],
    );
    let catalog = empty().next(&[
        marked("nas/files", &["read", "only_there"], 1),
        marked("attic/files", &["read"], 1),
        marked("shed/files", &["read"], 2),
        Arc::new(other_schema.marked(Some(mark(1)))),
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
fn an_entry_keeps_its_name_and_the_names_of_who_is_gone() {
    let (nas, attic) = (
        marked("nas/files", &["read"], 1),
        marked("attic/files", &["read"], 1),
    );
    let first = empty().next(std::slice::from_ref(&nas));
    let both = first.next(&[nas.clone(), attic.clone()]);
    assert_eq!(listed(&both), ["nas__files__read"]);
    let alone = both.next(std::slice::from_ref(&attic));
    assert_eq!(listed(&alone), ["attic__files__read"]);
    for name in ["nas__files__read", "nas/files:read"] {
        assert_eq!(places(&alone, name), ["attic/files"], "{name}");
    }
    let back = alone.next(&[nas.clone(), attic.clone()]);
    assert_eq!(listed(&back), ["attic__files__read"]);
    let here = back.next(&[nas, attic, marked("mine", &["read"], 1)]);
    assert_eq!(listed(&here), ["mine__read"]);
    let all = ["mine", "attic/files", "nas/files"];
    assert_eq!(places(&here, "nas__files__read"), all);
    // What another server has under the name is that server's.
    let taken = alone.next(&[
        marked("attic/files", &["read"], 1),
        tools("nas/files", &["read"]),
    ]);
    assert_eq!(places(&taken, "nas__files__read"), [""; 0]);
    assert_eq!(listed(&empty().next(&[])), [""; 0]);
}

/// Whoever may call one of them is shown the entry; a mark that is taken back makes two of it.
#[test]
fn the_entry_is_shown_to_who_may_call_one_of_them() {
    let (nas, attic) = (
        marked("nas/files", &["read"], 1),
        marked("attic/files", &["read"], 1),
    );
    let catalog = empty().next(&[attic.clone(), nas.clone()]);
    let sees = |open: &[&str]| {
        let keep = |server: &ServerId, _: Option<&str>| open.contains(&server.as_str());
        let (view, kind) = (CatalogView::All, ListKind::Tools);
        let sifted = catalog.sift(&view, kind, Era::Modern, "those", keep);
        let page = sifted.unwrap().page(None, Era::Modern).unwrap();
        read(&page, kind).0
    };
    assert_eq!(sees(&["nas/files"]), ["attic__files__read"]);
    assert_eq!(sees(&["attic/files"]), ["attic__files__read"]);
    assert_eq!(sees(&["other"]), [""; 0]);
    let unmarked = Arc::new((*nas).clone().marked(None));
    let catalog = catalog.next(&[attic, unmarked]);
    assert_eq!(listed(&catalog).len(), 2);
}
