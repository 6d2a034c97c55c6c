//! What other nodes offer beside what this one does.

use super::*;

fn names(catalog: &Catalog) -> Vec<String> {
    let page: Bytes = first_page(catalog, &CatalogView::All, ListKind::Tools).into();
    read(&page, ListKind::Tools).0
}

fn leads_to(catalog: &Catalog, name: &str) -> Option<String> {
    let tool = catalog.tool(&CatalogView::All, name)?;
    Some(tool.canonical_name.to_string())
}

/// PRJ-008, FED-061: tools of other nodes have the node's name in front, and no local name changes or leads elsewhere
/// because a node came.
#[test]
fn a_new_node_does_not_change_local_names() {
    let local = [
        tools("demo", &["time", "echo"]),
        tools("nasty", &["time_2"]),
    ];
    let before = empty().with_offers(&local);
    let mut all = local.to_vec();
    all.push(tools("nas/demo", &["time", "only_there"]));
    let after = before.with_offers(&all);
    let own: Vec<_> = names(&after)
        .into_iter()
        .filter(|name| !name.starts_with("nas__"))
        .collect();
    assert_eq!(own, names(&before));
    for name in ["time", "echo", "demo__time", "demo:time", "time_2"] {
        assert_eq!(leads_to(&after, name), leads_to(&before, name), "{name}");
        assert!(leads_to(&after, name).is_some(), "{name}");
    }
    for name in ["nas__demo__time", "nas/demo:time"] {
        assert_eq!(leads_to(&after, name).unwrap(), "nas/demo:time");
    }
    assert_eq!(leads_to(&after, "only_there"), None);
    assert_eq!(
        leads_to(&after, "nas__demo__only_there").unwrap(),
        "nas/demo:only_there"
    );
    let form = |name| NamedItem {
        view: &CatalogView::All,
        kind: ListKind::Tools,
        name,
    };
    for name in ["nas__demo__time", "nas/demo:time"] {
        let claim = form(name).claim(&id("nas/demo"), None).unwrap();
        assert_eq!(claim.own_name.as_deref(), Some("time"), "{name}");
        assert_eq!(form(name).claim(&id("demo"), None), None, "{name}");
    }
}

/// The same holds for URIs: those of other nodes are wrapped, and lead back.
#[test]
fn uris_of_other_nodes_are_wrapped_and_do_not_hide_local_ones() {
    let local = resources("files", &["file:///a"], &["file:///{+path}"]);
    let far = resources(
        "nas/files",
        &["file:///a", "file:///b"],
        &["file:///{+path}"],
    );
    let catalog = empty().with_offers(&[local, far]);
    let route = |uri: &str| {
        let route = catalog.resource(&CatalogView::All, uri).unwrap();
        (route.server.to_string(), route.uri.to_string())
    };
    let own = |uri: &str| ("files".to_owned(), uri.to_owned());
    assert_eq!(route("file:///a"), own("file:///a"));
    assert_eq!(route("file:///b"), own("file:///b"));
    let page: Bytes = first_page(&catalog, &CatalogView::All, ListKind::Resources).into();
    let (listed, _) = read(&page, ListKind::Resources);
    assert_eq!(listed[0], "file:///a");
    for (uri, meant) in listed[1..].iter().zip(["file:///a", "file:///b"]) {
        assert_eq!(route(uri), ("nas/files".to_owned(), meant.to_owned()));
    }
    let shown = catalog.visible_uri(&CatalogView::All, &id("nas/files"), "file:///c");
    assert_eq!(
        route(&shown),
        ("nas/files".to_owned(), "file:///c".to_owned())
    );
    assert!(
        catalog
            .template(&CatalogView::All, "file:///{+path}")
            .is_some()
    );
}

/// CMCP-014: what another node tells of a tool is refused for the reasons and in the words for which a tool of this
/// node is; of what is taken no compiled schema stays.
#[test]
fn schemas_of_other_nodes_are_checked_early_and_compiled_lazily() {
    let schema = |name: &str, schema: &str| {
        format!(r#"{{"name":"{name}","description":"d","inputSchema":{schema}}}"#)
    };
    let definitions = [
        schema(
            "fine",
            r#"{"type":"object","properties":{"a":{"type":"integer"}}}"#,
        ),
        schema(
            "alike",
            r#"{"type":"object","properties":{"a":{"type":"integer"}}}"#,
        ),
        schema("any", r#"{"type":"object"}"#),
        schema("list", r#"{"type":"array"}"#),
        schema(
            "odd",
            r#"{"type":"object","properties":{"a":{"type":"whole"}}}"#,
        ),
        schema(
            "far",
            r#"{"type":"object","$ref":"https://example.org/a.json"}"#,
        ),
        schema("loop", r##"{"type":"object","allOf":[{"$ref":"#"}]}"##),
    ];
    let [here, there] = ["demo", "nas/demo"]
        .map(|server| ServerOffer::new(id(server)).with_list(ListKind::Tools, &definitions));
    let rejected = |offer: &ServerOffer| -> Vec<String> {
        let (rejected, _) = offer.rejected();
        rejected.iter().map(ToString::to_string).collect()
    };
    assert_eq!(rejected(&here).len(), 4);
    assert_eq!(rejected(&here), rejected(&there));
    let on_demand = |offer: &ServerOffer| -> Vec<bool> {
        let tools = offer.tools().iter();
        tools
            .map(|tool| tool.input.text(&tool.raw).is_some())
            .collect()
    };
    assert_eq!(on_demand(&here), [false; 3]);
    assert_eq!(
        on_demand(&there),
        [true, true, false],
        "any object takes no memory"
    );
    let fine = &there.tools()[1];
    let text = fine.input.text(&fine.raw).unwrap();
    assert_eq!(
        text,
        r#"{"type":"object","properties":{"a":{"type":"integer"}}}"#
    );
}

/// A definition that came from another node is in memory once, whatever it is called and in however many lists.
#[test]
fn a_definition_is_shared_between_lists() {
    let definition: Arc<str> = tool("time").into();
    let offer =
        ServerOffer::new(id("nas/demo")).with_list(ListKind::Tools, &[Arc::clone(&definition)]);
    let catalog = empty().with_offers(&[Arc::new(offer)]);
    let listed = catalog.tool(&CatalogView::All, "nas__demo__time").unwrap();
    assert!(Arc::ptr_eq(&listed.raw, &definition));
    let page = first_page(&catalog, &CatalogView::All, ListKind::Tools);
    assert!(page.contains(r#""name":"nas__demo__time""#), "{page}");
    let page = first_page(&catalog, &one("nas/demo"), ListKind::Tools);
    assert!(page.contains(&*definition), "{page}");
}
