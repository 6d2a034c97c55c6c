//! What other nodes offer beside what this one does.

use super::*;

fn names(catalog: &Catalog) -> Vec<String> {
    let page: Bytes = first_page(catalog, &CatalogView::All, ListKind::Tools).into();
    read(&page, ListKind::Tools).0
}

fn leads_to(catalog: &Catalog, name: &str) -> Option<String> {
    let tool = catalog.tool(&CatalogView::All, name)?;
    Some(tool.canonical.to_string())
}

/// PRJ-008: tools of other nodes have the node's name in front, and no local name changes or leads elsewhere
/// because a node came.
#[test]
fn a_node_that_comes_changes_no_name_of_this_one() {
    let local = [
        tools("demo", &["time", "echo"]),
        tools("nasty", &["time_2"]),
    ];
    let before = empty().next(&local);
    let mut all = local.to_vec();
    all.push(tools("nas/demo", &["time", "only_there"]));
    let after = before.next(&all);
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
        assert_eq!(claim.own.as_deref(), Some("time"), "{name}");
        assert_eq!(form(name).claim(&id("demo"), None), None, "{name}");
    }
}

/// The same holds for URIs: those of other nodes are wrapped, and lead back.
#[test]
fn uris_of_other_nodes_are_wrapped_and_take_none_away() {
    let local = resources("files", &["file:///a"], &["file:///{+path}"]);
    let far = resources(
        "nas/files",
        &["file:///a", "file:///b"],
        &["file:///{+path}"],
    );
    let catalog = empty().next(&[local, far]);
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
    let shown = catalog.shown_uri(&CatalogView::All, &id("nas/files"), "file:///c");
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
