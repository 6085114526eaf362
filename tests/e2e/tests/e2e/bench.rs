//! `podvisor bench`, as far as its figures say anything in a test: their form.

use tests_e2e::Host;
use tokio::process::Command;

async fn bench(host: &Host, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(host.daemon.binary());
    command.arg("--config").arg(host.daemon.config()).arg("bench").args(arguments);
    let output = command.output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn a_measurement_has_a_row_for_its_handler_and_leaves_no_pod() {
    let Some(host) = Host::start().await else { return };
    let image = host.busybox();
    let (code, output, error) = bench(&host, &["--pods", "2", "--image", &image, "-o", "json"]).await;
    assert_eq!(code, 0, "{output}{error}");
    let figures: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(figures[0]["pods"], 2, "{output}");
    for time in ["startMs", "execMs", "stopMs"] {
        let of = |percentile| figures[0][time][percentile].as_f64().unwrap();
        assert!(of("p50") > 0.0 && of("p50") <= of("p99"), "{output}");
    }
    assert!(figures[0]["memoryBytes"].as_u64().unwrap() > 1 << 20, "{output}");
    let (code, output, error) = bench(&host, &["--handler", "none", "--image", &image]).await;
    assert!(code == 125 && output.is_empty() && error.contains("measuring the handler none"), "{error}");
    assert!(host.client().pods().await.unwrap().is_empty());
    host.stop().await.unwrap();
}
