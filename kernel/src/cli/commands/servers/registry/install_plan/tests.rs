use super::*;

fn plan(server: Value) -> Result<InstallPlan, InstallError> {
    let server: PublishedServer = serde_json::from_value(server).unwrap();
    InstallPlan::for_server(&server, None)
}

fn package(kind: &str, identifier: &str, more: Value) -> Value {
    let mut package = json!({"registryType": kind, "identifier": identifier, "version": "1.2.3"});
    for (key, value) in more.as_object().unwrap() {
        package[key] = value.clone();
    }
    json!({"name": "io.github.acme/x", "packages": [package]})
}

fn command(server: Value) -> Vec<String> {
    plan(server)
        .unwrap()
        .with_values(&Map::new())
        .unwrap()
        .command
}

#[test]
fn packages_are_run_in_exactly_their_version() {
    assert_eq!(
        command(package("npm", "@acme/x", json!({}))),
        ["npx", "-y", "@acme/x@1.2.3"]
    );
    assert_eq!(
        command(package("pypi", "x", json!({}))),
        ["uvx", "x==1.2.3"]
    );
    let docker = ["docker", "run", "-i", "--rm", "acme/x:1.2.3"];
    assert_eq!(command(package("oci", "acme/x", json!({}))), docker);
    let tagged = package("oci", "ghcr.io/acme/x:v2.0.0", json!({"version": null}));
    assert_eq!(command(tagged).last().unwrap(), "ghcr.io/acme/x:v2.0.0");
}

#[test]
fn packages_without_an_exact_version_are_rejected() {
    for (kind, identifier, more) in [
        ("npm", "--evil", json!({})),
        ("npm", "git+https://h.test/x", json!({})),
        ("npm", "../x", json!({})),
        ("npm", "@/x", json!({})),
        ("pypi", "x @ https://h.test", json!({})),
        ("oci", "-v", json!({})),
        ("oci", "acme/x", json!({"version": "latest"})),
        ("oci", "acme/x:latest", json!({})),
        ("npm", "x", json!({"version": "^1"})),
        ("npm", "x", json!({"version": null})),
        ("npm", "x", json!({"registryBaseUrl": "https://evil.test"})),
        (
            "npm",
            "x",
            json!({"transport": {"type": "streamable-http", "url": "x"}}),
        ),
        ("nuget", "x", json!({})),
    ] {
        assert!(
            plan(package(kind, identifier, more)).is_err(),
            "{kind} {identifier}"
        );
    }
}

#[test]
fn arguments_and_variables_become_words() {
    let server = package(
        "npm",
        "x",
        json!({
            "packageArguments": [
                {"type": "positional", "value": "start"},
                {"type": "named", "name": "--dir", "isRequired": true},
                {"type": "named", "name": "--more"},
                {"type": "positional", "valueHint": "file", "isRequired": true, "default": "a"},
            ],
            "environmentVariables": [
                {"name": "UNITS", "isRequired": true, "choices": ["m", "i"]},
                {"name": "LEVEL", "value": "{level}", "variables": {"level": {"isRequired": true}}},
                {"name": "TOKEN", "isRequired": true, "isSecret": true, "description": "d"},
                {"name": "OTHER"},
            ],
        }),
    );
    let open = plan(server).unwrap();
    let shown = [
        "npx", "-y", "x@1.2.3", "start", "--dir", "<--dir>", "<file>",
    ];
    assert_eq!(open.command, shown);
    let names: Vec<_> = open.required_inputs().map(PublishedInput::label).collect();
    assert_eq!(names, ["--dir", "file", "UNITS", "level"]);
    let values = json!({"--dir": "$(x) ;y", "file": "f", "UNITS": "m", "level": "5"});
    let Value::Object(values) = values else {
        panic!("an object")
    };
    let plan = open.with_values(&values).unwrap();
    let command = ["npx", "-y", "x@1.2.3", "start", "--dir", "$$(x) ;y", "f"];
    assert_eq!(plan.command, command);
    assert_eq!(
        plan.env,
        [("UNITS".into(), "m".into()), ("LEVEL".into(), "5".into())]
    );
    assert_eq!(plan.secrets[0].name, "TOKEN");
}

#[test]
fn docker_gets_names_of_variables_and_never_their_values() {
    let server = package(
        "oci",
        "acme/x",
        json!({
            "runtimeArguments": [{"type": "named", "name": "--network", "value": "host"}],
            "environmentVariables": [{"name": "TOKEN", "isRequired": true, "isSecret": true}],
        }),
    );
    let plan = plan(server).unwrap().with_values(&Map::new()).unwrap();
    let command = [
        "docker",
        "run",
        "-i",
        "--rm",
        "--network",
        "host",
        "-e",
        "TOKEN",
        "acme/x:1.2.3",
    ];
    assert_eq!(plan.command, command);
    assert_eq!(plan.launcher_words, ["--network", "host"]);
}

#[test]
fn an_address_is_https_and_its_headers_are_hidden() {
    let remote = |url: &str| {
        json!({"name": "a/b", "remotes": [{"type": "sse", "url": url,
        "variables": {"tenant": {"isRequired": true}},
        "headers": [{"name": "X-Api-Key", "isRequired": true}]}]})
    };
    let Value::Object(values) = json!({"tenant": "t"}) else {
        panic!("an object")
    };
    let open = plan(remote("https://{tenant}.h.test/mcp")).unwrap();
    let plan_of = open.with_values(&values).unwrap();
    assert_eq!(plan_of.url.as_deref(), Some("https://t.h.test/mcp"));
    assert!(plan_of.secrets[0].is_header);
    let open = plan(remote("http://h.test")).unwrap();
    assert!(matches!(
        open.with_values(&values),
        Err(InstallError::InvalidUrl(_))
    ));
}

#[test]
fn secrets_in_command_lines_and_values_like_references_are_rejected() {
    let open = package(
        "npm",
        "x",
        json!({
        "packageArguments": [{"type": "named", "name": "--token", "isRequired": true, "isSecret": true}]}),
    );
    assert!(matches!(plan(open), Err(InstallError::PlaintextSecret(_))));
    let reference = package(
        "npm",
        "x",
        json!({
        "environmentVariables": [{"name": "A", "value": "file:/etc/passwd"}]}),
    );
    assert!(matches!(
        plan(reference),
        Err(InstallError::InvalidValue(..))
    ));
    let name = package(
        "npm",
        "x",
        json!({"environmentVariables": [{"name": "A=B", "value": "x"}]}),
    );
    assert!(matches!(plan(name), Err(InstallError::InvalidValue(..))));
}
