//! What others make of the OpenAPI document: clients generated in Python and TypeScript, used, and schemathesis, which
//! tries the door by it. `cargo xtask openapi-test` builds what it needs and starts it.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use mgp_tests::harness::{HttpClient, Kernel, OpenApiPrograms, Program};

/// Longest that any of the programs may take: they start slowly on a busy machine.
const LONGEST: Duration = Duration::from_secs(240);

/// The tools that schemathesis calls: those that do the same at any time, and do it soon.
const TRIED: &str =
    "redeem|it__(echo|structured_echo|test_simple_text|test_error_handling|old|deep)$";

/// How an operation says that it takes a continuation.
const CONTINUES: &str = r##",{"$ref":"#/components/parameters/Mcp-Lite-Continuation"}"##;

/// Cases of each tool and phase.
const CASES: &str = "50";

/// A tool with much in its schema, in the words of an older draft.
const OLD: &str = r##"{"name":"old","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"pair":{"type":"array","items":[{"type":"string"},{"type":"integer"}],"additionalItems":false,"minItems":2},"tree":{"$ref":"#/definitions/tree"},"kind":{"enum":["a","b"]}},"required":["kind"],"additionalProperties":false,"definitions":{"tree":{"type":"object","properties":{"below":{"type":"array","maxItems":1,"items":{"$ref":"#/definitions/tree"}}}}}}}"##;

/// One of 2020-12.
const DEEP: &str = r##"{"name":"deep","inputSchema":{"type":"object","properties":{"one":{"oneOf":[{"$ref":"#/$defs/text"},{"type":"integer","minimum":0}]},"any":{"type":["string","null"],"maxLength":5}},"$defs":{"text":{"type":"string","minLength":2}}}}"##;

#[tokio::main]
async fn main() -> ExitCode {
    let programs = match OpenApiPrograms::install() {
        Ok(programs) => programs,
        Err(why) => {
            eprintln!("not installed: {why}");
            return ExitCode::FAILURE;
        }
    };
    let entry = Program::fixture(&["--tool", OLD, "--tool", DEEP]).entry("it");
    let door = "[http]\nlisten = \"127.0.0.1:0\"\n";
    let kernel = Kernel::with_config(&format!("{door}{entry}")).await;
    kernel.connected(&["it"]).await;
    let made = kernel.mgp_json(&["agents", "add", "client"]).await;
    let token = made["token"].as_str().expect("a token").to_owned();
    let base = kernel.url().replace("/mcp", "/mcp-lite/v1");
    let folder = tempfile::TempDir::new().expect("a folder");
    let file = folder.path().join("document.json");
    std::fs::write(&file, document(&base, &token).await).expect("the document is written");

    in_python(&programs, folder.path(), (&base, &token)).await;
    in_typescript(&programs, folder.path(), (&base, &token)).await;
    tried(&programs, folder.path(), (&base, &token)).await;
    assert!(
        kernel.mgp(&["status"]).await.status.success(),
        "the kernel goes on"
    );
    ExitCode::SUCCESS
}

async fn document(base: &str, token: &str) -> String {
    let mut reader = HttpClient::new(&format!("{base}/openapi.json"));
    reader.set(http::header::AUTHORIZATION, &format!("Bearer {token}"));
    let answer = reader.send(http::Method::GET, "").await.expect("an answer");
    assert_eq!(answer.status, 200);
    answer.text().await
}

async fn in_python(programs: &OpenApiPrograms, folder: &Path, (base, token): (&str, &str)) {
    let file = folder.join("document.json").display().to_string();
    let generated = folder.join("generated").display().to_string();
    let generate = [
        "generate",
        "--path",
        &file,
        "--output-path",
        &generated,
        "--meta",
        "none",
    ];
    run(&programs.command("openapi-python-client", &generate)).await;
    let script = programs.python(&OpenApiPrograms::source().join("use_client.py"));
    run(&script
        .arg(base)
        .arg(folder.display().to_string())
        .env("TOKEN", token))
    .await;
}

async fn in_typescript(programs: &OpenApiPrograms, folder: &Path, (base, token): (&str, &str)) {
    let at = |name: &str| folder.join(name).display().to_string();
    let types = programs.node("openapi-typescript/bin/cli.js");
    run(&types.args(&[&at("document.json"), "-o", &at("document.ts")])).await;
    let source = OpenApiPrograms::source().join("use_client.ts");
    std::fs::copy(source, folder.join("use_client.ts")).expect("the script is there");
    std::os::unix::fs::symlink(programs.modules(), folder.join("node_modules")).expect("a link");
    std::fs::write(folder.join("package.json"), r#"{"type":"module"}"#).expect("it is written");
    let compiler = [
        "--strict",
        "--target",
        "es2022",
        "--module",
        "preserve",
        "--lib",
        "es2022,dom",
    ];
    let globals = "declare const process: { argv: string[]; env: Record<string, string> };\n";
    std::fs::write(folder.join("globals.d.ts"), globals).expect("it is written");
    let files = [&at("globals.d.ts"), &at("use_client.ts")];
    let compile = programs.node("typescript/bin/tsc").args(&compiler);
    run(&compile.args(&files.map(String::as_str))).await;
    let script = programs.node(&at("use_client.js"));
    run(&script.arg(base).env("TOKEN", token)).await;
}

/// schemathesis makes calls that fit the document and calls that do not, and looks at every answer. Tokens of promises
/// and continuations fit as texts and are refused all the same, so what takes them is tried by itself.
async fn tried(programs: &OpenApiPrograms, folder: &Path, (base, token): (&str, &str)) {
    let file = folder.join("document.json");
    let whole = std::fs::read_to_string(&file).expect("it was written");
    let plain = folder.join("plain.json");
    std::fs::write(&plain, whole.replace(CONTINUES, "")).expect("it is written");
    let refused = ["--exclude-checks", "positive_data_acceptance"];
    for (file, more) in [
        (plain, &["--exclude-path", "/tools/redeem"]),
        (file, &refused),
    ] {
        let (file, header) = (
            file.display().to_string(),
            format!("Authorization: Bearer {token}"),
        );
        let options = [
            "run",
            &file,
            "--url",
            base,
            "-H",
            &header,
            "--include-path-regex",
            TRIED,
        ];
        let bounds = [
            "--max-examples",
            CASES,
            "--request-timeout",
            "20",
            "--seed",
            "1",
            "--no-color",
        ];
        let tries = programs.command("st", &options).args(&bounds).args(more);
        run(&tries).await;
    }
}

/// Runs a program, which has to succeed, and prints what it says.
async fn run(program: &Program) {
    let output = program.output(LONGEST).await;
    let text = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(output.status.success(), "{}: {told}", program.command);
}
