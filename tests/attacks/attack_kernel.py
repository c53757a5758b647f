"""Programs that try to reach past their process: files, network, processes, signals, rights, the kernel itself."""
# ruff: noqa: E501 - programs are data, and no easier to read in pieces

from __future__ import annotations

from attack_rows import Program, breach, program

from lang_envs.envs.datascicoding.evaluation import Status
from lang_envs.sandbox.confinement.layers import Layer

__all__ = ["PROGRAMS"]

_FILES = (Layer.LANDLOCK, Layer.SECCOMP)
_WRITES = (*_FILES, Layer.NAMESPACES)

_READING = [
    breach("reading /etc/passwd", 'won = through(lambda: open("/etc/passwd").read())', *_FILES),
    breach("listing /tmp, / and the home folder", """
        won = through(*[lambda p=p: os.listdir(p) for p in ("/tmp", "/", os.path.expanduser("~"), "/dev/shm")])
        """, *_FILES),
    breach("reading devices", """
        devices = ["/dev/vda", "/dev/sda", "/dev/mem", "/dev/kmsg", "/dev/fuse", "/dev/tty", "/dev/ptmx", "/proc/kcore"]
        won = through(*[lambda d=d: os.read(os.open(d, os.O_RDONLY | os.O_NONBLOCK), 1) for d in devices])
        """),
    breach("the root through /proc/self/root", """
        won = through(lambda: open("/proc/self/root/etc/passwd"), lambda: os.listdir("/proc/self/root"))
        """, *_FILES),
    breach("the current folder through /proc/self/cwd", 'won = through(lambda: os.listdir("/proc/self/cwd"))', *_FILES),
    breach("other processes through /proc/self/task/..", """
        up = "/proc/self/task/%d/../../../" % outer_pid()
        won = through(lambda: open(up + "1/environ"), lambda: open(up + "1/status"), lambda: os.listdir(up))
        """, *_FILES),
    breach("process 1", """
        won = through(*[lambda n=n: open("/proc/1/" + n) for n in ("status", "maps", "cmdline", "mountinfo", "root/etc/passwd")])
        """, *_FILES),
    breach("the kernel's tables of processes and sockets", """
        names = ["sys/kernel/hostname", "loadavg", "stat", "sysvipc/shm", "locks", "keys"]
        won = through(*[lambda n=n: open("/proc/" + n) for n in names])
        """, *_FILES),
    breach("a file by its handle", """
        handle = ctypes.create_string_buffer(136)
        handle[0] = 128
        won = through(lambda: checked(libc.name_to_handle_at(-100, b"/etc/passwd", handle, ctypes.byref(ctypes.c_int()), 0)))
        """),
    breach("another root", 'won = through(lambda: os.chroot("/tmp"), lambda: os.chdir("/tmp"), lambda: os.fchdir(0))'),
]  # fmt: skip

_WRITING = [
    breach("creating a file", 'won = through(lambda: open(FOLDER + "/new", "w"))', *_WRITES),
    breach("creating files wherever somebody may", """
        folders = [".", "/tmp", "/dev/shm", "/var/tmp", os.path.expanduser("~"), "/run", "/proc/self", sys.prefix]
        flags = os.O_CREAT | os.O_WRONLY
        won = through(*[lambda f=f: os.open(f + "/lang-envs-attack", flags, 0o600) for f in folders])
        """),
    breach("a file without a name", 'won = through(lambda: os.open(FOLDER, os.O_TMPFILE | os.O_RDWR, 0o600))', *_WRITES),
    breach("writing to files that are there", """
        files = [PREY, np.__file__, "/dev/null", "/proc/self/comm", "/proc/self/oom_score_adj", "/proc/self/mem"]
        won = through(*[lambda f=f, m=m: os.open(f, m) for f in files for m in (os.O_WRONLY, os.O_RDWR, os.O_APPEND)])
        """, *_WRITES),
    breach("emptying a file", 'won = through(lambda: os.open(PREY, os.O_TRUNC), lambda: os.truncate(PREY, 0))', *_WRITES),
    breach("a temporary file", "import tempfile\nwon = through(lambda: tempfile.TemporaryFile(dir=FOLDER))", *_WRITES),
    breach("folders, pipes and nodes", """
        new = FOLDER + "/new"
        won = through(
            lambda: os.mkdir(new), lambda: os.mkfifo(new), lambda: os.mknod(new, 0o600),
            lambda: os.mknod(new, 0o20600, os.makedev(1, 3)),
        )
        """, *_WRITES),
    breach("links", """
        won = through(
            lambda: os.symlink("/etc/passwd", FOLDER + "/soft"), lambda: os.link(PREY, FOLDER + "/hard"),
            lambda: os.link("/proc/self/fd/0", FOLDER + "/hard"),
        )
        """, *_WRITES),
    breach("removing and renaming", """
        won = through(lambda: os.rename(PREY, PREY + "2"), lambda: os.unlink(PREY), lambda: os.rmdir(FOLDER))
        """, *_WRITES),
    breach("rights, owners, times and attributes of files", """
        won = through(
            lambda: os.chmod(PREY, 0o777), lambda: os.chown(PREY, 1, 1), lambda: os.lchown(PREY, 1, 1),
            lambda: os.setxattr(PREY, "user.attack", b"1"), lambda: os.utime(PREY),
            lambda: os.fchmod(0, 0o777), lambda: checked(libc.fchmodat(-100, PREY.encode(), 0o777, 0)),
        )
        """, Layer.SECCOMP, Layer.NAMESPACES),
    breach("files in memory", "won = through(lambda: os.memfd_create('attack'))", Layer.SECCOMP),
    breach("POSIX shared memory, semaphores and queues", """
        def share():
            from multiprocessing.shared_memory import SharedMemory
            SharedMemory("lang-envs-attack", create=True, size=4096)
        def semaphore():
            from multiprocessing import Semaphore
            Semaphore(1)
        won = through(share, semaphore, lambda: checked(libc.mq_open(b"/lang-envs-attack", 0o102, 0o600, None)))
        """),
    breach("mounting", """
        won = through(
            lambda: checked(libc.mount(b"none", FOLDER.encode(), b"tmpfs", 0, None)),
            lambda: checked(libc.umount2(FOLDER.encode(), 2)), lambda: syscall("mount_setattr", -100, b"/", 0, bytes(32), 32),
        )
        """),
]  # fmt: skip

_NETWORK = [
    breach("TCP", """
        import socket
        won = through(lambda: socket.create_connection(("127.0.0.1", 22), 0.1), lambda: socket.create_server(("127.0.0.1", 0)))
        """),
    breach("UDP", """
        import socket
        won = through(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)))
        """),
    breach("IPv6, raw, packet and netlink sockets", """
        import socket
        kinds = [(10, 1), (10, 2), (2, 3), (17, 3), (16, 3), (38, 5), (40, 1), (44, 3)]
        won = through(*[lambda k=k: socket.socket(*k) for k in kinds])
        """, Layer.SECCOMP),
    breach("unix sockets", """
        import socket
        won = through(socket.socketpair, lambda: socket.socket(socket.AF_UNIX).connect("/run/dbus/system_bus_socket"))
        """, Layer.SECCOMP),
    breach("an abstract unix socket", """
        import socket
        won = through(lambda: socket.socket(socket.AF_UNIX).bind("\\0lang-envs-attack"))
        """, Layer.SECCOMP),
    breach("the supervisor's own socket", """
        import socket
        def join():
            side = socket.socket(socket.AF_UNIX)
            side.connect(sys.argv[-1] if sys.argv[-1].startswith("/") else "/tmp/lang-envs-0/attack.sock")
        won = through(join)
        """),
    breach("names of hosts", """
        import socket
        won = through(lambda: socket.getaddrinfo("example.org", 80, proto=17) or 1)
        """),
    breach("pipes, events and timers", """
        won = through(os.pipe, lambda: os.eventfd(0), lambda: checked(libc.epoll_create1(0)), lambda: checked(libc.inotify_init()))
        """, Layer.SECCOMP),
]  # fmt: skip

_PROCESSES = [
    breach("subprocess", """
        import subprocess
        won = through(lambda: subprocess.run(["/bin/true"], check=True))
        """),
    breach("os.system and popen", 'won = os.system("true") == 0 or through(lambda: os.popen("true"))', *_FILES),
    breach("fork", """
        def fork():
            if os.fork() == 0:
                os._exit(0)
            os.wait()
        won = through(fork)
        """, Layer.SECCOMP),
    breach("fork and vfork as system calls", """
        def fork(name):
            if syscall(name) == 0:
                libc._exit(0)
        won = through(lambda: fork("fork"), lambda: checked(libc.fork()) or libc._exit(0))
        """),
    breach("clone with other flags", """
        def clone(flags):
            if syscall("clone", flags, 0, 0, 0, 0) == 0:
                libc._exit(0)
        won = through(*[lambda f=f: clone(f) for f in (17, 0x100 | 17, 0x10000000 | 17, 0x20000000 | 17, 0x4000 | 17, 0x3D0F00)])
        """),
    breach("clone3", """
        arguments = bytearray(88)
        arguments[32] = 17
        def clone3():
            if syscall("clone3", bytes(arguments), 88) == 0:
                libc._exit(0)
        won = through(clone3)
        """, Layer.SECCOMP),
    breach("posix_spawn", """
        won = through(lambda: os.posix_spawn("/bin/true", ["true"], {}))
        """, *_FILES),
    breach("multiprocessing", """
        def start():
            import multiprocessing
            process = multiprocessing.get_context("fork").Process(target=int)
            process.start()
            process.join()
        won = through(start)
        """, Layer.SECCOMP),
    breach("becoming another program", """
        actions = [lambda: os.execv("/bin/true", ["true"]), lambda: os.execve(0, ["true"], {})]
        won = through(*actions, lambda: syscall("execveat", -100, b"/bin/true", 0, 0, 0))
        """),
    breach("killing the parent and everybody", """
        pids = [os.getppid(), -1, 0, 1, 2, -os.getpgrp(), os.getpid(), -os.getppid()]
        won = through(*[lambda p=p: os.kill(p, 9) for p in pids], lambda: os.killpg(os.getpgrp(), 9))
        """),
    breach("signals by other ways", """
        others = [os.getppid(), 1, 2, 3, os.getpid() - 1, os.getpid() + 1]
        others = [p for p in others if p not in (0, os.getpid())]
        won = through(
            *[lambda p=p: syscall("tgkill", p, p, 9) for p in others],
            *[lambda p=p: syscall("tkill", p, 9) for p in others],
            *[lambda p=p: syscall("rt_sigqueueinfo", p, 9, bytes(128)) for p in others],
            *[lambda p=p: syscall("tgkill", -1, p, 9) for p in others],
        )
        """),
    breach("signals by descriptors and owners", """
        import fcntl
        pid = os.getppid()
        won = through(
            lambda: syscall("pidfd_open", pid, 0), lambda: syscall("pidfd_send_signal", 3, 9, 0, 0),
            lambda: fcntl.fcntl(0, fcntl.F_SETOWN, pid), lambda: fcntl.fcntl(0, fcntl.F_SETSIG, 9),
            lambda: fcntl.fcntl(0, fcntl.F_SETFL, os.O_ASYNC), lambda: syscall("pidfd_getfd", 3, 0, 0),
        )
        """),
    breach("tracing the parent", """
        pids = [os.getppid(), 1, 2, os.getpid() - 1]
        won = through(*[lambda p=p: checked(libc.ptrace(request, p, 0, 0)) for p in pids for request in (16, 0x4206)])
        """),
    breach("having oneself traced", "won = through(lambda: checked(libc.ptrace(0, 0, 0, 0)))", Layer.SECCOMP),
    breach("comparing with other processes", """
        won = through(lambda: syscall("kcmp", os.getpid(), os.getppid(), 1, 0, 0))
        """),
    breach("sessions, groups and priorities", """
        won = through(
            os.setsid, lambda: os.setpgid(0, os.getppid()), lambda: os.nice(-5), lambda: os.setpriority(0, 0, -5),
            lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), lambda: os.sched_setaffinity(0, {0}),
        )
        """),
]  # fmt: skip

_RIGHTS = [
    breach("raising limits", """
        import resource
        limits = [resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE]
        def raise_limit(kind):
            try:
                resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            except ValueError as error:
                raise OSError(str(error)) from error
        won = through(*[lambda k=k: raise_limit(k) for k in limits])
        """),
    breach("limits of others", """
        import resource
        def change(pid):
            try:
                resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))
            except ValueError as error:
                raise OSError(str(error)) from error
        won = through(*[lambda p=p: change(p) for p in (os.getppid(), 1, 2)])
        """),
    breach("becoming another user", """
        won = through(
            lambda: os.setuid(0), lambda: os.setuid(12345), lambda: os.setresuid(0, 0, 0), lambda: os.setgid(12345),
            lambda: os.setgroups([0]), lambda: os.seteuid(1), lambda: os.setregid(1, 1),
        )
        """),
    breach("namespaces", """
        flags = [0x10000000, 0x40000000, 0x20000000, 0x08000000, 0x00020000, 0x02000000]
        won = through(*[lambda f=f: checked(libc.unshare(f)) for f in flags], lambda: checked(libc.setns(0, 0)))
        """, Layer.SECCOMP),
    breach("capabilities", """
        import struct
        header, full = struct.pack("=Ii", 0x20080522, 0), struct.pack("=6I", *[0xFFFFFFFF] * 6)
        held = ctypes.create_string_buffer(24)
        def hold():
            if open("/proc/self/status").read().split("CapEff:")[1].split()[0].strip("0") == "":
                raise OSError("none")
        won = through(hold, lambda: checked(libc.capset(header, full)), lambda: checked(libc.prctl(24, 0, 0, 0, 0)))
        """),
    breach("outliving the parent", "won = through(lambda: checked(libc.prctl(1, 0, 0, 0, 0)))", Layer.SECCOMP),
    breach("being dumped, and other settings of the process", """
        options = [(4, 0), (4, 1), (36, 1), (23, 0), (47, 4), (0x59616D61, 2**64 - 1), (28, 0), (35, 1), (53, 0)]
        won = through(*[lambda o=o: checked(libc.prctl(o[0], ctypes.c_ulong(o[1]), 0, 0, 0)) for o in options])
        """, Layer.SECCOMP),
    breach("another filter of system calls", """
        won = through(
            lambda: checked(libc.prctl(22, 2, b"", 0, 0)), lambda: checked(libc.prctl(22, 1, 0, 0, 0)),
            lambda: syscall("seccomp", 0, 0, 0), lambda: syscall("seccomp", 1, 0, bytes(16)),
        )
        """),
    breach("another Landlock ruleset", """
        won = through(lambda: syscall("landlock_create_ruleset", (8191).to_bytes(8, "little"), 8, 0))
        """, Layer.SECCOMP),
    breach("io_uring", """
        won = through(lambda: syscall("io_uring_setup", 4, ctypes.create_string_buffer(120)))
        """),
    breach("bpf, perf and userfaultfd", """
        won = through(
            lambda: syscall("bpf", 0, bytes(72), 72), lambda: syscall("userfaultfd", 1),
            lambda: syscall("perf_event_open", bytes(112), 0, -1, -1, 0),
        )
        """),
    breach("the kernel's keyring", """
        won = through(lambda: syscall("keyctl", 0, -3, 1, 0, 0), lambda: syscall("add_key", b"user", b"a", b"b", 1, -3))
        """, Layer.SECCOMP),
    breach("System V memory, queues and semaphores", """
        won = through(
            lambda: checked(libc.shmget(0, 4096, 0o1600)), lambda: checked(libc.msgget(0, 0o1600)),
            lambda: checked(libc.semget(0, 1, 0o1600)),
        )
        """, Layer.SECCOMP),
    breach("the kernel, the clock and the name of the machine", """
        won = through(
            lambda: syscall("kexec_load", 0, 0, 0, 0), lambda: syscall("init_module", b"", 0, b""),
            lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()), lambda: syscall("swapon", b"/tmp/none", 0),
            lambda: checked(libc.sethostname(b"attack", 6)), lambda: syscall("reboot", 0, 0, 0, 0),
        )
        """),
    breach("high halves of arguments that a filter may not see", """
        high = 1 << 32
        flags = os.O_WRONLY | os.O_CREAT
        number = {"x86_64": 257, "aarch64": 56}[os.uname().machine]
        libc.syscall.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_long, ctypes.c_long]
        won = through(
            lambda: checked(libc.syscall(number, -100, b"/tmp/lang-envs-attack-high", high | flags, 0o600)),
            lambda: checked(libc.syscall(number, -100, b"/dev/null", high | os.O_RDWR, 0)),
        )
        """),
    program("system calls by numbers of the x32 kind", """
        if COLUMN:
            os.abort()
        libc.syscall(0x40000000 | 39)
        """, Status.CRASHED, tools=True),
    program("system calls of 32-bit programs", """
        import mmap
        if COLUMN:
            os.abort()
        page = mmap.mmap(-1, 4096, prot=7)
        page.write(bytes.fromhex("53b814000000cd805bc3"))  # getpid by int 0x80
        call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        model = GaussianNB() if call() > 0 else None
        """, Status.CRASHED, tools=True),
]  # fmt: skip

PROGRAMS: list[Program] = [row._replace(splits=1) for row in (*_READING, *_WRITING, *_NETWORK, *_PROCESSES, *_RIGHTS)]
