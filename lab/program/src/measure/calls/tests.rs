use std::io::Write as _;

use super::*;

#[test]
fn reads_a_summary() {
    let summary = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 99.15    0.023300           4      5000           sendto
  0.85    0.000200          20        10         2 epoll_wait
  0.00    0.000000           0         1           exit_group
------ ----------- ----------- --------- --------- ----------------
100.00    0.023500           4      5011         2 total
";
    let expect = [("epoll_wait", 10), ("exit_group", 1), ("sendto", 5000)];
    assert_eq!(parse(summary), BTreeMap::from(expect.map(|(name, calls)| (name.to_owned(), calls))));
}

#[test]
fn finds_the_process_that_a_line_is_about() {
    let check = |line, expect| assert_eq!(named(line, &[470, 471]), expect, "{line}");
    check("strace: Process 471 attached\n", Some(471));
    check("strace: Process 471 attached with 12 threads\n", Some(471));
    check("strace: Process 4711 attached\n", None);
    check("strace: attach: ptrace(PTRACE_SEIZE, 470): No such process\n", Some(470));
    check("strace: Could not attach to process.\n", None);
    check("", None);
}

#[test]
fn counts_what_processes_do() {
    let mut over = Command::new("true").spawn().unwrap();
    over.wait().unwrap();
    let mut echoes = [0, 1].map(|_| {
        let mut echo = Command::new("sh");
        echo.args(["-c", "while read line; do echo $line; done"]);
        echo.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    });
    let says = |echo: &mut Child| {
        writeln!(echo.stdin.as_mut().unwrap(), "hello").unwrap();
        let mut said = [0; 6];
        echo.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(&said, b"hello\n");
    };
    // Waits until all of them have begun.
    echoes.iter_mut().for_each(says);
    let counted = CallCounter::attach(&[echoes[0].id(), over.id(), echoes[1].id()]);
    for echo in &mut echoes {
        (0..3).for_each(|_| says(echo));
    }
    // A call counts when it returns, which may be after its bytes have arrived. All calls of a process that has ended have returned.
    for mut echo in echoes {
        drop(echo.stdin.take());
        echo.wait().unwrap();
    }
    let counted = counted.and_then(CallCounter::stop);
    match counted {
        Ok(calls) => {
            assert_eq!((calls.processes, calls.by_name.get("write")), (2, Some(&6)), "{calls:?}");
            assert!(CallCounter::attach(&[over.id()]).is_err());
        }
        Err(error) => eprintln!("skipped: no strace here ({error})"),
    }
}
