//! The commands of this crate alone, by the name under which this program is called: a build takes seconds.

fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default().to_string_lossy().into_owned();
    netbricks_click::command::run(&program, arguments).map(std::process::ExitCode::from).unwrap_or_else(
        || {
            eprintln!("call this as click, click-flatten or click-buildtool");
            std::process::ExitCode::FAILURE
        },
    )
}
