/* loopback: how fast TCP carries bytes on this machine from one core to another, and what each side pays.
 *
 *     loopback BYTES SIZE_OF_A_WRITE [CORE_OF_THE_RECEIVER CORE_OF_THE_SENDER] */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire.h"

static void pin(const char *core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(atoi(core), &set);
    if (sched_setaffinity(0, sizeof set, &set)) die("core %s: %s", core, strerror(errno));
}

static double cpu_seconds(int who) {
    struct rusage usage;
    getrusage(who, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void send_all(struct sockaddr_in *address, uint64_t total, size_t size) {
    uint8_t *bytes = allocate(size);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)address, sizeof *address)) die("connect: %s", strerror(errno));
    for (uint64_t sent = 0; sent < total;) {
        ssize_t more = send(fd, bytes, total - sent < size ? total - sent : size, 0);
        if (more < 0) die("send: %s", strerror(errno));
        sent += (uint64_t)more;
    }
    exit(0);
}

int main(int count, char **arguments) {
    if (count != 3 && count != 5) die("usage: loopback BYTES SIZE [RECEIVER_CORE SENDER_CORE]");
    uint64_t total = strtoull(arguments[1], NULL, 10), received = 0;
    size_t size = strtoull(arguments[2], NULL, 10), capacity = 1 << 20;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1)) die("listen: %s", strerror(errno));
    getsockname(listener, (struct sockaddr *)&address, &length);
    pid_t sender = fork();
    if (sender < 0) die("fork: %s", strerror(errno));
    if (!sender) {
        if (count == 5) pin(arguments[4]);
        send_all(&address, total, size);
    }
    if (count == 5) pin(arguments[3]);
    int fd = accept(listener, NULL, NULL);
    uint8_t *into = allocate(capacity);
    uint64_t begun = now_ns();
    double cpu = cpu_seconds(RUSAGE_SELF);
    while (received < total) {
        ssize_t more = recv(fd, into, capacity, 0);
        if (more <= 0) die("recv: %s", strerror(errno));
        received += (uint64_t)more;
    }
    double seconds = (double)(now_ns() - begun) / 1e9;
    cpu = cpu_seconds(RUSAGE_SELF) - cpu;
    waitpid(sender, NULL, 0);
    printf("{\"bytes\": %llu, \"seconds\": %.6f, \"receiver_cpu_seconds\": %.6f, \"sender_cpu_seconds\": %.6f}\n",
           (unsigned long long)received, seconds, cpu, cpu_seconds(RUSAGE_CHILDREN));
    return 0;
}
