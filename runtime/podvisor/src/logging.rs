//! The log of a serving process: lines on standard error, collected by systemd. The filter can change while
//! the process runs. The format cannot: a span keeps its fields in the format of its start.

use std::io::{IsTerminal, stderr};

use runtime_traces::Traces;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use crate::config::{LOG_VARIABLE, Loaded, Log, LogFormat, filter};

/// The filter of the log's lines, to change it.
#[derive(Clone, Debug)]
pub(crate) struct LogFilter(reload::Handle<EnvFilter, Registry>);

impl LogFilter {
    /// Filters by this from now on.
    ///
    /// # Errors
    /// The log has ended, together with the process.
    pub(crate) fn set(&self, filter: EnvFilter) -> Result<(), reload::Error> {
        self.0.reload(filter)
    }
}

/// Starts logging with this configuration. Spans of calls go to `traces` alone. Without it, they are not
/// created. Called once.
pub(crate) fn begin(loaded: &Loaded, traces: Option<&Traces>) -> LogFilter {
    let (filter, handle) = filter(&loaded.config.log);
    // The hint keeps unlogged spans from being checked twice.
    let of_the_log = filter_fn(|metadata| !runtime_spans::is_of_calls(metadata));
    let filter = filter.and(of_the_log.with_max_level_hint(LevelFilter::TRACE));
    let lines = lines(loaded.config.log.format).with_filter(filter);
    tracing_subscriber::registry().with(lines).with(traces.map(Traces::layer)).init();
    if let Some(why) = &loaded.variable_refused {
        tracing::warn!(variable = LOG_VARIABLE, why, "the environment's filter of the log is not used");
    }
    handle
}

/// A filter and its handle. The configuration's own filter was checked earlier.
pub(crate) fn filter(log: &Log) -> (reload::Layer<EnvFilter, Registry>, LogFilter) {
    let filter = filter::parse(&log.level).unwrap_or_else(|_| "info".into());
    let (layer, handle) = reload::Layer::new(filter);
    (layer, LogFilter(handle))
}

fn lines(format: LogFormat) -> Box<dyn Layer<Registry> + Send + Sync> {
    let lines = fmt::layer().with_writer(stderr);
    match format {
        LogFormat::Text => lines.with_ansi(stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().boxed(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_new_filter_counts_for_the_next_line() {
        let log = Log { level: "warn".into(), ..Log::default() };
        let (filter, handle) = filter(&log);
        let written = Written::default();
        let writer = written.clone();
        let lines = fmt::layer().json().with_writer(move || writer.clone()).with_filter(filter);
        let _guard = tracing_subscriber::registry().with(lines).set_default();
        let log_both = || {
            let _span = tracing::info_span!("pod", pod = "p1").entered();
            tracing::debug!("fine");
            tracing::warn!("grave");
        };
        log_both();
        handle.set("debug".into()).unwrap();
        log_both();
        handle.set("off".into()).unwrap();
        log_both();
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let messages: Vec<_> = lines.iter().map(|line| &line["fields"]["message"]).collect();
        assert_eq!(messages, ["grave", "fine", "grave"]);
        assert_eq!(lines[2]["span"]["pod"], "p1");
    }
}
