/* Runs three instructions in a virtual machine: the smallest proof that /dev/kvm executes a guest. Exits 0 if the guest's output
 * arrives. Used by selftest alone. */
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

/* mov dx, 0x3f8; mov al, 'K'; out dx, al; hlt */
static const unsigned char code[] = {0xba, 0xf8, 0x03, 0xb0, 'K', 0xee, 0xf4};

static int fail(const char *what)
{
	perror(what);
	return 1;
}

int main(void)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (kvm < 0)
		return fail("/dev/kvm");
	int vm = ioctl(kvm, KVM_CREATE_VM, 0);
	if (vm < 0)
		return fail("KVM_CREATE_VM");
	void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return fail("mmap");
	memcpy(memory, code, sizeof(code));
	struct kvm_userspace_memory_region region = {
		.guest_phys_addr = 0x1000, .memory_size = 4096, .userspace_addr = (unsigned long)memory};
	if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) < 0)
		return fail("KVM_SET_USER_MEMORY_REGION");
	int vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	if (vcpu < 0)
		return fail("KVM_CREATE_VCPU");
	struct kvm_run *run = mmap(NULL, (size_t)ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	if (run == MAP_FAILED)
		return fail("mmap of the vCPU");
	struct kvm_sregs sregs;
	if (ioctl(vcpu, KVM_GET_SREGS, &sregs) < 0)
		return fail("KVM_GET_SREGS");
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	struct kvm_regs regs = {.rip = 0x1000, .rflags = 2};
	if (ioctl(vcpu, KVM_SET_SREGS, &sregs) < 0 || ioctl(vcpu, KVM_SET_REGS, &regs) < 0)
		return fail("setting registers");
	if (ioctl(vcpu, KVM_RUN, 0) < 0)
		return fail("KVM_RUN");
	if (run->exit_reason != KVM_EXIT_IO || *((char *)run + run->io.data_offset) != 'K') {
		fprintf(stderr, "exit reason %u\n", run->exit_reason);
		return 1;
	}
	return 0;
}
