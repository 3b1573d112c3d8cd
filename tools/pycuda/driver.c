/* Stands in for NVIDIA's driver library while pycuda is linked: gives its name, and answers that there is no device. */
int cuInit(unsigned flags)
{
    (void)flags;
    return 100; /* CUDA_ERROR_NO_DEVICE */
}
